"""Finds the owner of a job, which is the FlyteWorkflow of its execution."""

import asyncio
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.job import OwnerReference
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.kube.api_client import ApiClient
from backend_plugin.kube.api_errors import ApiError
from backend_plugin.kube.api_resources import ApiResource, is_path_safe
from backend_plugin.kube.connection import ApiRequest
from backend_plugin.kube.permissions import Permissions, PolicyRule
from backend_plugin.shell.cluster import ClusterUnavailable
from backend_plugin.shell.timeouts import timeout

WORKFLOWS: Final = ApiResource(group="flyte.lyft.com", version="v1alpha1", plural="flyteworkflows")
_KIND: Final = "FlyteWorkflow"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""The ``Accept`` header for the metadata only, because a whole workflow may have a megabyte."""
_SECONDS: Final = 1.0
"""The timeout in seconds of the request for the owner; after it, the job is created without an owner."""
_EVERYWHERE: Final = ""


@dataclass(slots=True, kw_only=True)
class _RequestPause:
    why: str
    until: float
    rule: PolicyRule | None
    """The missing RBAC rule, if any."""


class OwnerFinder:
    """Finds the FlyteWorkflow of an execution.

    After a failure that will last, such as a missing RBAC rule, it sends no requests for `pause` seconds.
    """

    def __init__(self, api: ApiClient, permissions: Permissions, pause: float) -> None:
        self._api = api
        self._permissions = permissions
        self._pause = pause
        self._pauses: dict[str, _RequestPause] = {}
        """Pauses by namespace, because a Role may permit the request in one namespace only."""

    async def find_owner(self, namespace: str, execution: str, scope: str) -> OwnerReference | None:
        """Return the owner of the jobs of an execution, or None if it is unknown.

        If an RBAC rule is missing, the logged message names a Role in the namespace `scope`; if `scope` is
        empty, a ClusterRole.
        """
        try:
            async with timeout(_SECONDS):
                return await self.lookup_workflow(namespace, execution, scope)
        except (ClusterUnavailable, asyncio.TimeoutError):
            return None

    async def lookup_workflow(self, namespace: str, execution: str, scope: str) -> OwnerReference | None:
        """Return the owner of the jobs of an execution; None if its workflow does not exist in this cluster.

        If an RBAC rule is missing, the error names a Role in the namespace `scope`; if `scope` is empty, a
        ClusterRole.

        Raises:
            ClusterUnavailable: If it cannot be determined whether the workflow exists.
        """
        if not is_path_safe(namespace, execution):
            raise ClusterUnavailable(f"{namespace}/{execution} is not a valid name of a {_KIND}")
        if why := self._get_pause_reason(namespace):
            raise ClusterUnavailable(why)
        rule = PolicyRule(resource=WORKFLOWS, verbs=("get",), namespace=scope)
        request = ApiRequest(path=WORKFLOWS.build_path(namespace, execution), accept=_METADATA, doubts=False)
        try:
            found = get_mapping(await self._api.fetch_object(request), "metadata")
        except ApiError as answer:
            # A 404 for the kind gives no evidence about this execution: the workflows are in another cluster.
            if answer.is_missing_object(WORKFLOWS.plural, execution):
                self._end_pauses(namespace)
                return None
            raise self._build_unavailable(namespace, answer, rule) from answer
        self._end_pauses(namespace)
        uid = get_text(found, "uid")
        if not uid or get_text(found, "name") != execution:
            raise ClusterUnavailable(f"the API server returned another object than {_KIND} {execution}")
        version = f"{WORKFLOWS.group}/{WORKFLOWS.version}"
        return OwnerReference(api_version=version, kind=_KIND, name=execution, uid=uid)

    def _get_pause_reason(self, namespace: str) -> str:
        for pause in (self._pauses.get(_EVERYWHERE), self._pauses.get(namespace)):
            if pause is not None and asyncio.get_running_loop().time() < pause.until:
                return pause.why
        return ""

    def _build_unavailable(self, namespace: str, answer: ApiError, rule: PolicyRule) -> ClusterUnavailable:
        why = f"the API server answers {answer}"
        if answer.is_not_authorized:
            why = self._permissions.record_missing(rule, answer.message)
            self._start_pause(namespace, why, rule)
        elif answer.is_not_served:
            why = f"the cluster has no {WORKFLOWS}: the executions of Flyte are in another cluster"
            self._start_pause(_EVERYWHERE, why, None)
        elif not answer.is_transient:
            self._start_pause(namespace, why, None)
        return ClusterUnavailable(why)

    def _start_pause(self, where: str, why: str, rule: PolicyRule | None) -> None:
        until = asyncio.get_running_loop().time() + self._pause
        self._pauses[where] = _RequestPause(why=why, until=until, rule=rule)

    def _end_pauses(self, namespace: str) -> None:
        paused = self._pauses.pop(namespace, None)
        self._pauses.pop(_EVERYWHERE, None)
        if paused is not None and paused.rule is not None:
            self._permissions.record_granted(paused.rule)
