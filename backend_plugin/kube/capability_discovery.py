"""Detects the gang scheduling capabilities of a cluster with discovery, lists and dry runs."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from backend_plugin.core.dialects import table
from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.reading import get_int, get_mappings, get_text
from backend_plugin.core.scheduling.adapter import FLAG, SchedulerResource
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.registry import list_schedulers
from backend_plugin.core.settings import PluginSettings
from backend_plugin.core.values import Manifest
from backend_plugin.kube.api_client import ApiClient
from backend_plugin.kube.api_errors import ApiError
from backend_plugin.kube.api_resources import EVENTS, JOBS, PODS, ApiResource, is_path_safe
from backend_plugin.kube.capability_facts import (
    UnknownFact,
    build_capabilities,
    find_flag_scheduler,
    list_served_dialects,
    list_versions,
    read_container_defaults,
    select_queue_kinds,
)
from backend_plugin.kube.connection import ApiRequest
from backend_plugin.kube.permissions import Permissions, PolicyRule
from backend_plugin.shell.cluster import ClusterUnavailable

_DEPLOYMENTS: Final = ApiResource(group="apps", version="v1", plural="deployments")
_LIMITS: Final = ApiResource(group="", version="v1", plural="limitranges")
_PROBE: Final = "kfpytorch-probe"
_DRY_RUN: Final = {"dryRun": "All", "fieldManager": "kfpytorch", "fieldValidation": "Ignore"}
_EVENTS: Final = "200"
"""The maximum number of events that are listed to find the schedulers that bind pods."""
_QUEUES: Final = "500"
_CLOSED: Final = ("Closed", "Closing")
_LONGEST: Final = 300
"""The maximum length of an error message that states why a fact is unknown; a webhook may send more."""

_POD: Final[Manifest] = {
    # Satisfies the `restricted` level of Pod Security, and fits into any quota that is not exhausted.
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "containers": [
        {
            "name": "probe",
            "image": "probe",
            "resources": {part: {"cpu": "10m", "memory": "16Mi"} for part in ("requests", "limits")},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}
_ADMITTING: Final = [each for each in list_schedulers().values() if each.admits]
_QUEUED: Final = {each.queues.label: _PROBE for each in _ADMITTING if each.queues is not None}


class CapabilityDiscovery:
    """Detects the gang scheduling capabilities of one cluster, such as its APIs, schedulers and queues."""

    def __init__(self, api: ApiClient, permissions: Permissions) -> None:
        self._api = api
        self._permissions = permissions

    async def fetch_capabilities(self, namespace: str, settings: PluginSettings) -> Capabilities:
        """Return the current capabilities; see `CapabilitySource.fetch_capabilities`."""
        if not is_path_safe(namespace):
            raise ClusterUnavailable(f"{namespace} is not a valid namespace name")
        apis = await self._await_fact(self._list_api_versions())
        served = apis if isinstance(apis, Mapping) else {}
        facts: dict[str, Any] = {"apis": apis}
        if settings.detects_dialect:
            facts["unavailable_operators"] = await self._await_fact(self._list_unavailable_operators(served))
        if settings.gang.is_unconfigured:
            return build_capabilities(facts, ())
        kinds = select_queue_kinds(served)
        queries = self._build_queries(namespace, settings, served, kinds)
        answers = await asyncio.gather(*map(self._await_fact, queries.values()))
        facts |= zip(queries, answers, strict=True)
        return build_capabilities(facts, kinds)

    def _build_queries(
        self,
        namespace: str,
        settings: PluginSettings,
        served: Mapping[str, Sequence[str]],
        kinds: Mapping[str, tuple[SchedulerResource, str]],
    ) -> Mapping[str, Awaitable[Any]]:
        queries: dict[str, Awaitable[Any]] = {
            "kubernetes": self._fetch_server_version(),
            "operator_scheduler": self._find_operator_scheduler(),
            "schedulers": self._list_binding_schedulers(namespace),
            "container_defaults": self._list_container_defaults(namespace),
            **{name: self._list_open_queues(*kind, namespace) for name, kind in kinds.items()},
        }
        if settings.gang.needs_detection:
            queries["admission_scheduler"] = self._find_admission_scheduler(namespace)
        if any(each.status_parser.api in served for each in _ADMITTING):
            queries["suspends_jobs"] = self._is_job_suspended(namespace)
        return queries

    async def _await_fact(self, fact: Awaitable[Any]) -> Any:
        try:
            return await fact
        except (UnknownFact, ClusterUnavailable) as error:
            return error

    # ---- facts

    async def _list_api_versions(self) -> Mapping[str, Sequence[str]]:
        groups = get_mappings(await self._fetch_fact(ApiRequest(path="/apis", doubts=False), None), "groups")
        served = {get_text(group, "name"): tuple(list_versions(group)) for group in groups}
        kinds = list_served_dialects(served)
        if len(kinds) <= 1:
            return served
        for dialect in kinds:
            resource = JOBS[dialect.name]
            if not await self._has_resource(resource):
                others = [each for each in served[resource.group] if each != resource.version]
                served = {**served, resource.group: tuple(others)}
        return {group: versions for group, versions in served.items() if versions}

    async def _has_resource(self, resource: ApiResource) -> bool:
        """True if the API group has the resource; other projects use the group ``kubeflow.org`` too."""
        path = f"/apis/{resource.group}/{resource.version}"
        try:
            found = await self._fetch_fact(ApiRequest(path=path, doubts=False), None)
        except UnknownFact:
            return True
        return any(get_text(each, "name") == resource.plural for each in get_mappings(found, "resources"))

    async def _fetch_server_version(self) -> str | None:
        version = await self._fetch_fact(ApiRequest(path="/version", doubts=False), None)
        return get_text(version, "gitVersion").removeprefix("v") or None

    async def _find_operator_scheduler(self) -> str:
        for query in table.DEFAULT.deployments:
            names = [*{find_flag_scheduler(each) for each in await self._list_deployments(query)}]
            if len(names) == 1 and names[0] is not None:
                return names[0]
            if names:
                raise UnknownFact(
                    f"the Deployments of the training-operator do not contain one value of {FLAG}: it comes "
                    "from a shell or a variable, or several Deployments have different values"
                )
        raise UnknownFact("there is no Deployment training-operator")

    async def _list_unavailable_operators(self, served: Mapping[str, Sequence[str]]) -> Sequence[str]:
        """Return the kinds of jobs whose operator is down; empty if at most one kind is served.

        An operator is down if no pod of its Deployments is available. An operator without a Deployment counts
        as down only if another operator is available. `served` has the API versions by API group.
        """
        kinds = list_served_dialects(served)
        if len(kinds) <= 1:
            return ()
        # An operator without a Deployment may still run. But if another operator is available, probably only
        # the CRD of this one is left.
        available = {each.name: await self._is_available(each) for each in kinds}
        counted = (False, None) if any(available.values()) else (False,)
        return tuple(name for name, is_available in available.items() if is_available in counted)

    async def _is_available(self, dialect: Dialect) -> bool | None:
        """True if a Deployment of the operator has an available pod; None if it has no Deployment."""
        found = [each for query in dialect.deployments for each in await self._list_deployments(query)]
        return any(get_int(each, "status", "availableReplicas") for each in found) if found else None

    async def _list_deployments(self, query: Mapping[str, str]) -> Sequence[Manifest]:
        return get_mappings(await self._fetch_list(_DEPLOYMENTS, "", query), "items")

    async def _list_binding_schedulers(self, namespace: str) -> Sequence[str] | None:
        query = {"fieldSelector": "reason=Scheduled", "limit": _EVENTS}
        events = await self._fetch_list(EVENTS, self._permissions.get_scope(namespace), query)
        components = {
            get_text(event, "source", "component") or get_text(event, "reportingComponent")
            for event in get_mappings(events, "items")
        }
        # Without events there is no evidence for any scheduler.
        return tuple(sorted(components - {""})) or None

    async def _list_container_defaults(self, namespace: str) -> Mapping[str, str]:
        ranges = await self._fetch_list(_LIMITS, namespace, {})
        return read_container_defaults(get_mappings(ranges, "items"))

    async def _list_open_queues(self, kind: SchedulerResource, version: str, namespace: str) -> Sequence[str]:
        resource = ApiResource(group=kind.group, version=version, plural=kind.plural)
        scope = namespace if kind.is_namespaced else ""
        queues = await self._fetch_list(resource, scope, {"limit": _QUEUES})
        if get_text(queues, "metadata", "continue"):
            raise UnknownFact(f"there are more than {_QUEUES} {resource}")
        open_ones = (
            each for each in get_mappings(queues, "items") if get_text(each, "status", "state") not in _CLOSED
        )
        return tuple(sorted(get_text(each, "metadata", "name") for each in open_ones))

    async def _find_admission_scheduler(self, namespace: str) -> str:
        metadata = {"name": _PROBE, "namespace": namespace}
        pod: Manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _POD}
        return get_text(await self._dry_run_create(PODS, namespace, pod), "spec", "schedulerName")

    async def _is_job_suspended(self, namespace: str) -> bool:
        dialect = table.DEFAULT
        job = dialect.build_probe({"name": _PROBE, "namespace": namespace, "labels": _QUEUED})
        return dialect.is_suspended(await self._dry_run_create(JOBS[dialect.name], namespace, job))

    async def _dry_run_create(self, resource: ApiResource, namespace: str, manifest: Manifest) -> Manifest:
        request = ApiRequest(
            method="POST",
            path=resource.build_path(namespace),
            query=_DRY_RUN,
            body=msgspec.json.encode(manifest),
            doubts=False,
        )
        return await self._fetch_fact(request, self._permissions.build_rule(resource, namespace, "create"))

    async def _fetch_list(self, resource: ApiResource, namespace: str, query: Mapping[str, str]) -> Manifest:
        request = ApiRequest(path=resource.build_path(namespace), query=query, doubts=False)
        return await self._fetch_fact(request, self._permissions.build_rule(resource, namespace, "list"))

    async def _fetch_fact(self, request: ApiRequest, rule: PolicyRule | None) -> Manifest:
        try:
            return await self._api.fetch_object(request)
        except ApiError as answer:
            if answer.is_not_authorized and rule is not None:
                raise UnknownFact(self._permissions.record_missing(rule, answer.message)) from answer
            if answer.code >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.code == HTTPStatus.TOO_MANY_REQUESTS:
                raise ClusterUnavailable(f"the API server answers {answer}") from answer
            raise UnknownFact(f"the API server answers {answer}"[:_LONGEST]) from answer
