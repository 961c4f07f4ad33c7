"""Reads the pods, events, pod groups and logs of a burn-in from the API server."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.object_readers import read_observed
from backend_plugin.core.observed import Observed, Pod, PodGroup
from backend_plugin.core.reading import get_text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor.cluster_reader import ClusterReader
from backend_plugin.doctor.facts import NotReadable, Subject
from backend_plugin.doctor.queries import Query
from backend_plugin.kube.api_client import ApiClient
from backend_plugin.kube.api_errors import ApiError
from backend_plugin.kube.api_resources import EVENTS, PODS, ApiResource, list_group_kinds
from backend_plugin.kube.connection import ApiRequest

_LINES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnInObserver:
    """Reads the objects of one burn-in job without a watch."""

    api: ApiClient
    reader: ClusterReader
    namespace: str
    dialect: Dialect

    async def fetch_observed(self, name: str, job: Manifest | None) -> Observed:
        """Return the state of the job `name`: its manifest `job` (or None), its pods, events and pod groups.

        Raises:
            NotReadable: If the pods cannot be listed.
        """
        pods = await self._fetch_objects(PODS, labelSelector=f"{self.dialect.labels.job_name}={name}")
        observed = read_observed({"job": job, "pods": pods, "events": await self._fetch_events(name)})
        return structs.replace(observed, pod_groups=await self._fetch_pod_groups(name))

    async def _fetch_events(self, name: str) -> Sequence[Manifest]:
        """Return the events of the job's objects. Skip a kind of object if its events cannot be listed."""
        found: list[Manifest] = []
        for about in (self.dialect.name, *self.dialect.event_kinds, "Pod", "PodGroup"):
            with suppress(NotReadable):
                found += await self._fetch_objects(EVENTS, fieldSelector=f"involvedObject.kind={about}")
        return [each for each in found if get_text(each, "involvedObject", "name").startswith(name)]

    async def _fetch_pod_groups(self, name: str) -> tuple[PodGroup, ...]:
        """Return the pod groups of the job. Skip a kind of pod group that cannot be listed."""
        found: list[PodGroup] = []
        for kind in list_group_kinds():
            with suppress(NotReadable):
                groups = map(kind.read, await self._fetch_objects(kind.resource))
                found += [each for each in groups if isinstance(each, PodGroup) and each.name == name]
        return tuple(found)

    async def _fetch_objects(self, resource: ApiResource, **query: str) -> Sequence[Manifest]:
        look = Query(subject=Subject.JOBS, resource=resource, namespace=self.namespace, query=query)
        return await self.reader.read_objects(look) or []

    async def read_log(self, pod: Pod) -> Sequence[str]:
        """Return the last log lines of the program in a pod; none if the log cannot be read."""
        path = f"{PODS.build_path(self.namespace, pod.name)}/log"
        query = {"container": self.dialect.container, "tailLines": str(_LINES)}
        try:
            return await self.api.fetch_decoded(
                ApiRequest(path=path, query=query), lambda body: body.decode(errors="replace").splitlines()
            )
        except ApiError:  # The container has not started, or the pod was deleted.
            return []
