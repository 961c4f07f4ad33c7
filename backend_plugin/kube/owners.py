"""Finds the owner of a job, which is the FlyteWorkflow of its execution."""

import asyncio
from typing import Final

from backend_plugin.core.job import OwnerReference
from backend_plugin.core.reading import get_text
from backend_plugin.kube.api_client import ApiClient
from backend_plugin.kube.api_errors import ApiError
from backend_plugin.kube.api_resources import ApiResource, is_path_safe
from backend_plugin.kube.connection import ApiRequest
from backend_plugin.kube.permissions import Permissions, PolicyRule
from backend_plugin.shell.cluster import ClusterUnavailable
from backend_plugin.shell.together import timeout

WORKFLOWS: Final = ApiResource(group="flyte.lyft.com", version="v1alpha1", plural="flyteworkflows")
_KIND: Final = "FlyteWorkflow"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""The ``Accept`` header for the metadata only, because a whole workflow may have a megabyte."""
_SECONDS: Final = 1.0
"""The timeout in seconds of the request for the owner; after it, the job is created without an owner."""
_EVERYWHERE: Final = ""


class OwnerFinder:
    """Finds the FlyteWorkflow of an execution.

    After a failure that will last, such as a missing RBAC rule, the finder sends no requests for `pause`
    seconds.
    """

    def __init__(self, api: ApiClient, permissions: Permissions, pause: float) -> None:
        self._api = api
        self._permissions = permissions
        self._pause = pause
        self._pauses: dict[str, tuple[float, str]] = {}
        """The end and the reason of each pause, by namespace; the key of a pause in all namespaces is empty.

        Namespaces have their own pauses, because a Role permits the request in one namespace only.
        """

    async def find_owner(self, namespace: str, execution: str) -> OwnerReference | None:
        """Return the owner of the jobs of an execution, or None if it is unknown."""
        try:
            async with timeout(_SECONDS):
                return await self.lookup_workflow(namespace, execution)
        except (ClusterUnavailable, asyncio.TimeoutError):
            return None

    async def lookup_workflow(self, namespace: str, execution: str) -> OwnerReference | None:
        """Return the owner of the jobs of an execution; None if its workflow does not exist in this cluster.

        Raises:
            ClusterUnavailable: If it cannot be determined whether the workflow exists.
        """
        if not is_path_safe(namespace, execution):
            raise ClusterUnavailable(f"{namespace}/{execution} is not a valid name of a {_KIND}")
        if why := self._get_pause_reason(namespace):
            raise ClusterUnavailable(why)
        rule = self._permissions.build_rule(WORKFLOWS, namespace, "get")
        request = ApiRequest(path=WORKFLOWS.build_path(namespace, execution), accept=_METADATA, doubts=False)
        try:
            found = await self._api.fetch_object(request)
        except ApiError as answer:
            # A 404 for the kind gives no evidence about this execution: the workflows are in another cluster.
            if not answer.is_missing_object(WORKFLOWS.plural, execution):
                raise self._build_unavailable(namespace, answer, rule) from answer
            found = None
        self._pauses.pop(_EVERYWHERE, None)
        if self._pauses.pop(namespace, None) is not None:
            self._permissions.record_granted(rule)
        if found is None:
            return None
        uid = get_text(found, "metadata", "uid")
        if not uid or get_text(found, "metadata", "name") != execution:
            raise ClusterUnavailable(f"the API server returned another object than {_KIND} {execution}")
        version = f"{WORKFLOWS.group}/{WORKFLOWS.version}"
        return OwnerReference(api_version=version, kind=_KIND, name=execution, uid=uid)

    def _get_pause_reason(self, namespace: str) -> str:
        for where in (_EVERYWHERE, namespace):
            until, why = self._pauses.get(where, (0.0, ""))
            if asyncio.get_running_loop().time() < until:
                return why
        return ""

    def _build_unavailable(self, namespace: str, answer: ApiError, rule: PolicyRule) -> ClusterUnavailable:
        where, error = namespace, self._permissions.build_unavailable(answer, rule)
        if answer.is_not_served:
            why = f"the cluster has no {WORKFLOWS}: the executions of Flyte are in another cluster"
            where, error = _EVERYWHERE, ClusterUnavailable(why)
        if not answer.is_transient:
            self._pauses[where] = (asyncio.get_running_loop().time() + self._pause, str(error))
        return error
