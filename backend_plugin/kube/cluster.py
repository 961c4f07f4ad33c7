"""Implements the protocol `shell.cluster.Cluster` with API requests to a Kubernetes cluster."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from backend_plugin.core import rejection
from backend_plugin.core.dialects import table
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.job import OwnerReference
from backend_plugin.core.object_readers import read_pod
from backend_plugin.core.observed import Event, Job, Pod, PodGroup
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.runtimes import Runtime
from backend_plugin.core.values import Manifest
from backend_plugin.kube import credentials, json_decoder, protobuf_envelope
from backend_plugin.kube.api_client import ApiClient
from backend_plugin.kube.api_errors import ApiError, RequestOutcome
from backend_plugin.kube.api_resources import (
    EVENTS,
    JOBS,
    KINDS,
    LABELLED,
    POD_TEMPLATES,
    PODS,
    ApiResource,
    get_resource,
    is_path_safe,
)
from backend_plugin.kube.capability_discovery import CapabilityDiscovery
from backend_plugin.kube.connection import ApiRequest, Connection
from backend_plugin.kube.container_logs import ContainerLog
from backend_plugin.kube.listing import ObjectLister
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.owners import OwnerFinder
from backend_plugin.kube.permissions import Permissions, PolicyRule
from backend_plugin.kube.pod_decoder import PodDecoder
from backend_plugin.kube.reflector import Reflector, WatchTarget
from backend_plugin.kube.watch_merge import MergedKind
from backend_plugin.shell.cluster import (
    AlreadyExists,
    ClusterUnavailable,
    LogLine,
    LogRequest,
    Misconfigured,
    ObjectName,
    Record,
    Sink,
    VersionConflict,
)
from backend_plugin.shell.together import cancel_and_wait
from backend_plugin.shell.watch_status import WatchStatus

_WRITTEN: Final = {"fieldManager": "kfpytorch", "fieldValidation": "Strict"}
"""The query of write requests: the API server then rejects an object with a field outside its schema."""
_IN_PROTOBUF: Final = PodDecoder()
_OPERATORS: Final = {JOBS[name]: each.operator for name, each in table.DIALECTS.items()}
_IN_JSON: Final = json_decoder.JsonDecoder(dict[str, Any], read_pod)


class KubernetesCluster:
    """Implements `shell.cluster.Cluster` for one event loop. Create it with `open`."""

    def __init__(self, connection: Connection, options: KubernetesOptions) -> None:
        self.clock: Final = connection.clock
        self._connection = connection
        self._options = options
        self._api = ApiClient(connection, options.request_timeout)
        self._permissions = Permissions(options.namespaces)
        self._owners = OwnerFinder(self._api, self._permissions, options.refused_pause)
        self.watch_status: Final = WatchStatus()
        self.discovery: Final = CapabilityDiscovery(self._api, self._permissions)
        self._lister = ObjectLister(self._api, self._permissions, options)

    @classmethod
    async def open(cls, options: KubernetesOptions) -> "KubernetesCluster":
        """Return the cluster that the options or the environment specify. The API server may be down.

        Raises:
            CredentialsUnusable: If neither specifies usable credentials.
        """
        connection = Connection(credentials.select_credentials(options))
        await connection.open()
        return cls(connection, options)

    # ---- requests

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object; see `Cluster.create`."""
        resource = get_resource(manifest)
        namespace = get_text(manifest, "metadata", "namespace") or "default"
        if not is_path_safe(namespace):
            invalid = f'metadata.namespace: Invalid value: "{namespace}": not a name of a namespace'
            raise RequestRejected(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", invalid)
        request = ApiRequest(
            method="POST",
            path=resource.build_path(namespace),
            query=_WRITTEN,
            body=_encode_manifest(manifest),
        )
        try:
            return await self._api.fetch_object(request)
        except ApiError as answer:
            if answer.error_class.create is RequestOutcome.ADOPTED:
                raise AlreadyExists(answer.message) from answer
            rule = self._permissions.build_rule(resource, namespace, "create")
            raise self._build_write_error(answer, rule) from answer

    async def get(self, name: ObjectName, *, awaited: bool = True) -> Manifest | None:
        """Return a job; see `Cluster.get`."""
        manifest = await self._fetch_object(
            _get_job_resource(name), name.namespace, name.name, is_background=not awaited
        )
        found = None if manifest is None else get_text(manifest, "metadata", "uid")
        return manifest if name.uid in (None, found) else None

    async def list_pods(self, job: ObjectName) -> Sequence[Pod] | None:
        """Return the pods of a job from one list without pagination; see `Cluster.list_pods`."""
        namespace, label = job.namespace, table.get_dialect(job.dialect).labels.job_name
        if not is_path_safe(namespace, job.name):
            return ()
        query = {"labelSelector": f"{LABELLED['labelSelector']},{label}={job.name}"}
        request = ApiRequest(
            path=PODS.build_path(namespace), query=query, accept=protobuf_envelope.ACCEPT, is_background=True
        )
        rule = self._permissions.build_rule(PODS, namespace, "list", "watch")
        try:
            return await self._api.fetch_decoded(request, _decode_pods)
        except ApiError as answer:
            if not answer.is_not_authorized:
                raise self._permissions.build_unavailable(answer, rule) from answer
            # The caller continues without pods, because the rule may never be added.
            self._permissions.record_missing(rule, answer.message)
            return None

    async def patch(self, name: ObjectName, patch: Manifest, *, awaited: bool = False) -> None:
        """Patch a job; see `Cluster.patch`."""
        await self._patch_object(_get_job_resource(name), name, patch, awaited=awaited)

    async def _patch_object(
        self, resource: ApiResource, name: ObjectName, patch: Manifest, *, awaited: bool = False
    ) -> None:
        """Apply a merge patch. If `name` contains a uid, an object with another uid is not changed."""
        if not is_path_safe(name.namespace, name.name):
            return
        metadata = get_mapping(patch, "metadata")
        if name.uid is not None:
            patch = {**patch, "metadata": {**metadata, "uid": name.uid}}
        request = ApiRequest(
            method="PATCH",
            path=resource.build_path(name.namespace, name.name),
            query=_WRITTEN,
            body=_encode_manifest(patch),
            content_type="application/merge-patch+json",
            doubts=False,
            conflicts="resourceVersion" in metadata,
            is_background=not awaited,
        )
        try:
            await self._api.send(request)
        except ApiError as answer:
            if request.conflicts and answer.is_outdated:
                raise VersionConflict(str(answer)) from answer
            # A uid is immutable, so this is a different job.
            if answer.error_class.delete is RequestOutcome.ABSENT or "metadata.uid" in answer.fields:
                return
            rule = self._permissions.build_rule(resource, name.namespace, "patch")
            raise self._build_write_error(answer, rule) from answer

    async def delete(self, name: ObjectName, *, awaited: bool = False) -> None:
        """Delete a job; see `Cluster.delete`. This removes no finalizers."""
        await self._delete_object(_get_job_resource(name), name, awaited=awaited)

    async def delete_pod(self, name: ObjectName) -> None:
        """Delete a pod; see `Cluster.delete_pod`."""
        await self._delete_object(PODS, name)

    async def stop_pod(self, name: ObjectName) -> None:
        """Set a pod's `activeDeadlineSeconds`, so that its kubelet ends it; see `Cluster.stop_pod`."""
        await self._patch_object(PODS, name, {"spec": {"activeDeadlineSeconds": 1}})

    async def patch_object(self, manifest: Manifest, patch: Manifest) -> None:
        """Patch a prerequisite of a job (created before it) or a pod group; see `Cluster.patch_object`."""
        await self._patch_object(get_resource(manifest), _get_name(manifest), patch)

    async def list_prerequisites(self) -> Sequence[Manifest]:
        """Return the objects, such as runtimes, that were created before their jobs; see `Cluster`."""
        return await self._lister.list_prerequisites()

    async def list_foreign_jobs(self, name: str = "") -> Sequence[Job]:
        """Return the jobs without a label of this backend; see `Cluster.list_foreign_jobs`."""
        return await self._lister.list_foreign_jobs(name)

    async def list_runtimes(self) -> Sequence[Runtime]:
        """Return the training runtimes; see `Cluster.list_runtimes`."""
        return await self._lister.list_runtimes()

    async def delete_companion(self, manifest: Manifest) -> None:
        """Delete a companion object of a job, such as its pod group; see `Cluster.delete_companion`."""
        # A foreground deletion updates the object first. That update wakes gangs that co-scheduling has
        # refused; the deletion itself does not.
        await self._delete_object(get_resource(manifest), _get_name(manifest), propagation="Foreground")

    async def record_event(self, event: Manifest) -> None:
        """Create an event; see `Cluster.record_event`."""
        namespace = get_text(event, "metadata", "namespace")
        if not is_path_safe(namespace):
            return
        request = ApiRequest(
            method="POST",
            path=EVENTS.build_path(namespace),
            query=_WRITTEN,
            body=_encode_manifest(event),
            doubts=False,
            is_background=True,
        )
        rule = self._permissions.build_rule(EVENTS, namespace, "create")
        try:
            await self._api.send(request)
        except ApiError as answer:
            if answer.is_not_authorized:
                self._permissions.record_missing(rule, answer.message)
                return
            if answer.error_class.create is not RequestOutcome.ADOPTED:
                raise _build_event_error(answer) from answer
        self._permissions.record_granted(rule)

    async def list_pod_templates(self, namespaces: Sequence[str], name: str) -> Sequence[Manifest]:
        """Return the PodTemplates with this name; see `Cluster.list_pod_templates`."""
        templates = [await self._fetch_object(POD_TEMPLATES, namespace, name) for namespace in namespaces]
        return [template for template in templates if template is not None]

    async def find_owner(self, namespace: str, execution: str) -> OwnerReference | None:
        """Return the owner of the jobs of an execution; see `Cluster.find_owner`."""
        return await self._owners.find_owner(namespace, execution)

    async def lookup_workflow(self, namespace: str, execution: str) -> OwnerReference | None:
        """Return the FlyteWorkflow of an execution; see `FlyteCluster.lookup_workflow`."""
        return await self._owners.lookup_workflow(namespace, execution)

    async def list_jobs(self) -> Sequence[Job]:
        """Return all jobs; see `FlyteCluster.list_jobs`."""
        return await self._lister.list_jobs()

    def read_log(self, pod: ObjectName, request: LogRequest) -> AsyncIterator[LogLine]:
        """Yield the log lines of a container; see `Cluster.read_log`."""
        return ContainerLog(self._api, self._permissions, pod, request).iter_lines()

    async def _fetch_object(
        self, resource: ApiResource, namespace: str, name: str, *, is_background: bool = False
    ) -> Manifest | None:
        if not is_path_safe(namespace, name):
            return None
        try:
            return await self._api.fetch_object(
                ApiRequest(path=resource.build_path(namespace, name), is_background=is_background)
            )
        except ApiError as answer:
            if answer.error_class.get is RequestOutcome.ABSENT:
                return None
            rule = self._permissions.build_rule(resource, namespace, "get")
            raise self._permissions.build_unavailable(answer, rule) from answer

    async def _delete_object(
        self,
        resource: ApiResource,
        name: ObjectName,
        *,
        awaited: bool = False,
        propagation: str = "Background",
    ) -> None:
        if not is_path_safe(name.namespace, name.name):
            return
        how: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if name.uid is not None:
            how = {**how, "preconditions": {"uid": name.uid}}
        request = ApiRequest(
            method="DELETE",
            path=resource.build_path(name.namespace, name.name),
            body=_encode_manifest(how),
            doubts=False,
            is_background=not awaited,
        )
        try:
            await self._api.send(request)
        except ApiError as answer:
            if answer.error_class.delete is RequestOutcome.ABSENT:
                return
            rule = self._permissions.build_rule(resource, name.namespace, "delete")
            raise self._permissions.build_unavailable(answer, rule) from answer

    # ---- treatment of API errors

    def _build_write_error(self, answer: ApiError, rule: PolicyRule) -> RequestRejected | ClusterUnavailable:
        if (rejected := _build_rejection(answer)) is not None:
            return rejected
        if answer.is_not_authorized:
            return Misconfigured(self._permissions.record_missing(rule, answer.message))
        if answer.is_not_served and not answer.genuine:
            operator = _OPERATORS.get(rule.resource, "gang scheduler")
            return Misconfigured(f"the cluster has no {rule.resource}; install the {operator}")
        message = f"the API server answers {rejection.add_remedy(str(answer))}"
        return Misconfigured(message) if answer.error_class.misconfigured else ClusterUnavailable(message)

    # ---- watches

    async def watch(self, sink: Sink) -> None:
        """Send all watched objects, then each change, to `sink`, and log errors; see `Cluster.watch`."""
        tasks = [asyncio.create_task(reflector.run()) for reflector in self._create_reflectors(sink)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()  # A reflector only ends with an unexpected exception.
        finally:
            await cancel_and_wait(tasks)

    def _create_reflectors(self, sink: Sink) -> Sequence[Reflector]:
        gatherings = {kind.record: MergedKind(sink, kind.record) for kind in KINDS}
        jobs, pods = gatherings[Job].complete, gatherings[Pod].complete
        # List events after pods: a placeholder pod contains the name of its job, but its events do not.
        after: dict[type[Record], tuple[asyncio.Event, ...]] = {PodGroup: (jobs,), Event: (jobs, pods)}
        places = [
            WatchTarget(
                kind=kind,
                namespace=namespace,
                part=gatherings[kind.record].add_part(),
                watch_status=self.watch_status,
                after=after.get(kind.record, ()),
            )
            for kind in KINDS
            for namespace in self._options.namespaces or ("",)
        ]
        return [Reflector(self._api, place, self._permissions, self._options) for place in places]

    async def close(self) -> None:
        """Close the connections; the caller has to cancel watches first."""
        await self._connection.close()


def _get_job_resource(job: ObjectName) -> ApiResource:
    return JOBS[table.get_dialect(job.dialect).name]


def _get_name(manifest: Manifest) -> ObjectName:
    namespace, name, uid = (get_text(manifest, "metadata", key) for key in ("namespace", "name", "uid"))
    return ObjectName(namespace=namespace, name=name, uid=uid or None)


def _build_event_error(answer: ApiError) -> RequestRejected | ClusterUnavailable:
    if answer.genuine and not answer.is_transient:
        return RequestRejected(answer.code, answer.reason, answer.message)
    return ClusterUnavailable(f"the API server answers {answer}")


def _build_rejection(answer: ApiError) -> RequestRejected | None:
    if answer.is_too_large:
        return RequestRejected(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", answer.message)
    if answer.error_class.create in (RequestOutcome.REFUSED, RequestOutcome.NO_ROOM):
        return RequestRejected(answer.code, answer.reason, answer.message)
    return None


def _encode_manifest(manifest: Manifest) -> bytes:
    return msgspec.json.encode(manifest, enc_hook=dict)


def _decode_pods(body: bytes) -> Sequence[Pod]:
    page = (_IN_PROTOBUF if protobuf_envelope.is_wrapped(body) else _IN_JSON).decode_page(body)
    return [each.record for each in page.items if isinstance(each.record, Pod)]
