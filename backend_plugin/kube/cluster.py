"""Implements the protocol `shell.cluster.Cluster` with API requests to a Kubernetes cluster."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from http import HTTPStatus
from typing import Any, Final

import msgspec

from backend_plugin.core import refusal
from backend_plugin.core.errors import Refused
from backend_plugin.core.job import OwnerReference
from backend_plugin.core.observed import JOB_NAME, Event, Job, Pod, PodGroup, read_pod
from backend_plugin.core.reading import section, text
from backend_plugin.core.values import Manifest
from backend_plugin.kube import credentials, envelope, kinds, listing, wire
from backend_plugin.kube.answers import Answered, Outcome
from backend_plugin.kube.api import Api
from backend_plugin.kube.connection import Connection, Question
from backend_plugin.kube.container_logs import ContainerLog
from backend_plugin.kube.findings import Looking
from backend_plugin.kube.gathering import Gathering
from backend_plugin.kube.kinds import (
    EVENTS,
    JOBS,
    KINDS,
    LABELLED,
    POD_TEMPLATES,
    PODS,
    Resource,
    are_names,
)
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.owners import Owners
from backend_plugin.kube.parsed import Parser
from backend_plugin.kube.permissions import Permissions, Rule
from backend_plugin.kube.pod_wire import PodParser
from backend_plugin.kube.reflector import Place, Reflector
from backend_plugin.shell.cluster import (
    AlreadyExists,
    LogLine,
    LogRequest,
    Misconfigured,
    Name,
    Outdated,
    Record,
    Sink,
    Unavailable,
)
from backend_plugin.shell.sight import Sight
from backend_plugin.shell.together import end

_WRITTEN: Final = {"fieldManager": "kfpytorch", "fieldValidation": "Strict"}
"""An object with a field that the schema does not contain is rejected; the field is not dropped silently."""
_IN_PROTOBUF: Final[Parser] = PodParser()
_IN_JSON: Final[Parser] = wire.Parser(dict[str, Any], read_pod)


class KubernetesCluster:
    """Implements `shell.cluster.Cluster` for one event loop. Create it with `open`."""

    def __init__(self, connection: Connection, options: KubernetesOptions) -> None:
        self.clock: Final = connection.clock
        self._connection = connection
        self._options = options
        self._api = Api(connection, options.patience)
        self._permissions = Permissions()
        self._owners = Owners(self._api, self._permissions, options.refused_pause)
        self.sight: Final = Sight()
        self.looking: Final = Looking(self._api, self._permissions, options)
        self._following: set[asyncio.Task[None]] = set()
        self._reflecting: Sequence[Reflector] = ()

    @classmethod
    async def open(cls, options: KubernetesOptions) -> "KubernetesCluster":
        """Return the cluster that the options or the environment specify. The API server may be down.

        Raises:
            CredentialsUnusable: If neither specifies usable credentials.
        """
        async with AsyncExitStack() as undo:
            connection = Connection(credentials.choose(options))
            undo.push_async_callback(connection.close)
            await connection.open()
            undo.pop_all()
        return cls(connection, options)

    # ---- requests

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object; see `Cluster.create`."""
        resource = resource_of(manifest)
        namespace = text(section(manifest, "metadata"), "namespace") or "default"
        if not are_names(namespace):
            invalid = f'metadata.namespace: Invalid value: "{namespace}": not a name of a namespace'
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", invalid)
        question = Question(
            method="POST", path=resource.path(namespace), query=_WRITTEN, body=_encoded(manifest)
        )
        try:
            made = await self._api.read(question, wire.job_of if resource == JOBS else wire.object_of)
        except Answered as answer:
            if answer.row.create is Outcome.ADOPTED:
                raise AlreadyExists(answer.message) from answer
            rule = Rule(resource=resource, verbs=("create",), namespace=self._scope(namespace))
            raise self._refusal(answer, rule) from answer
        for each in self._reflecting:
            each.made(resource)
        return made

    async def get(self, name: Name, *, awaited: bool = True) -> Manifest | None:
        """Return a job; see `Cluster.get`."""
        found = await self._get(JOBS, name.namespace, name.name, behind=not awaited)
        return found if found is None or name.uid in (None, text(wire.metadata(found), "uid")) else None

    async def pods(self, namespace: str, job: str) -> Sequence[Pod] | None:
        """Return the pods of a job from one list without pagination; see `Cluster.pods`."""
        if not are_names(namespace, job):
            return ()
        query = {"labelSelector": f"{LABELLED['labelSelector']},{JOB_NAME}={job}"}
        question = Question(path=PODS.path(namespace), query=query, accept=envelope.ACCEPT, behind=True)
        rule = Rule(resource=PODS, verbs=("list", "watch"), namespace=self._scope(namespace))
        try:
            return await self._api.read(question, _pods_of)
        except Answered as answer:
            if not answer.is_not_authorized:
                raise self._unavailable(answer, rule) from answer
            # The caller continues without pods, because the rule may never be added.
            self._permissions.missing(rule, answer.message)
            return None

    async def patch(self, name: Name, patch: Manifest, *, awaited: bool = False) -> None:
        """Patch a job; see `Cluster.patch`."""
        if not are_names(name.namespace, name.name):
            return
        if name.uid is not None:
            patch = {**patch, "metadata": {**section(patch, "metadata"), "uid": name.uid}}
        question = Question(
            method="PATCH",
            path=JOBS.path(name.namespace, name.name),
            query=_WRITTEN,
            body=_encoded(patch),
            content_type="application/merge-patch+json",
            doubts=False,
            conflicts="resourceVersion" in section(patch, "metadata"),
            behind=not awaited,
        )
        try:
            await self._api.ask(question)
        except Answered as answer:
            if question.conflicts and answer.is_outdated:
                raise Outdated(str(answer)) from answer
            # A uid is immutable, so this is a different job.
            if answer.row.delete is Outcome.ABSENT or "metadata.uid" in answer.fields:
                return
            rule = Rule(resource=JOBS, verbs=("patch",), namespace=self._scope(name.namespace))
            if answer.is_not_authorized:
                raise Unavailable(self._permissions.missing(rule, answer.message)) from answer
            raise self._refusal(answer, rule) from answer

    async def delete(self, name: Name, *, awaited: bool = False) -> None:
        """Delete a job; see `Cluster.delete`. This removes no finalizers."""
        await self._delete(JOBS, name, awaited=awaited)

    async def delete_pod(self, name: Name) -> None:
        """Delete a pod; see `Cluster.delete_pod`."""
        await self._delete(PODS, name)

    async def delete_companion(self, manifest: Manifest) -> None:
        """Delete a companion object of a job; see `Cluster.delete_companion`."""
        found = section(manifest, "metadata")
        name = Name(namespace=text(found, "namespace"), name=text(found, "name"))
        # A foreground deletion updates the object first. That update wakes gangs that co-scheduling has
        # refused; the deletion itself does not.
        await self._delete(resource_of(manifest), name, propagation="Foreground")

    async def record(self, event: Manifest) -> None:
        """Create an event; see `Cluster.record`."""
        namespace = text(section(event, "metadata"), "namespace")
        if not are_names(namespace):
            return
        question = Question(
            method="POST",
            path=EVENTS.path(namespace),
            query=_WRITTEN,
            body=_encoded(event),
            doubts=False,
            behind=True,
        )
        rule = Rule(resource=EVENTS, verbs=("create",), namespace=self._scope(namespace))
        try:
            await self._api.ask(question)
        except Answered as answer:
            if answer.is_not_authorized:
                self._permissions.missing(rule, answer.message)
                return
            if answer.row.create is not Outcome.ADOPTED:
                raise self._lost_event(answer) from answer
        self._permissions.granted(rule)

    async def pod_templates(self, namespaces: Sequence[str], name: str) -> Sequence[Manifest]:
        """Return the PodTemplates with this name; see `Cluster.pod_templates`."""
        found = [await self._get(POD_TEMPLATES, namespace, name) for namespace in namespaces]
        return [template for template in found if template is not None]

    async def owner(self, namespace: str, execution: str) -> OwnerReference | None:
        """Return the owner of the jobs of an execution; see `Cluster.owner`."""
        return await self._owners.of(namespace, execution, self._scope(namespace))

    async def workflow(self, namespace: str, execution: str) -> OwnerReference | None:
        """Return the FlyteWorkflow of an execution; see `Executions.workflow`."""
        return await self._owners.found(namespace, execution, self._scope(namespace))

    async def jobs(self) -> Sequence[Job]:
        """Return all jobs; see `Executions.jobs`."""
        return await listing.jobs(self._api, self._permissions, self._options)

    async def log(self, pod: Name, request: LogRequest) -> AsyncIterator[LogLine]:
        """Yield the log lines of a container; see `Cluster.log`."""
        async with aclosing(ContainerLog(self._api, self._permissions, pod, request).lines()) as lines:
            async for line in lines:
                yield line

    async def _get(
        self, resource: Resource, namespace: str, name: str, *, behind: bool = False
    ) -> Manifest | None:
        if not are_names(namespace, name):
            return None
        try:
            return await self._api.object(Question(path=resource.path(namespace, name), behind=behind))
        except Answered as answer:
            if answer.row.get is Outcome.ABSENT:
                return None
            rule = Rule(resource=resource, verbs=("get",), namespace=self._scope(namespace))
            raise self._unavailable(answer, rule) from answer

    async def _delete(
        self, resource: Resource, name: Name, *, awaited: bool = False, propagation: str = "Background"
    ) -> None:
        if not are_names(name.namespace, name.name):
            return
        how: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if name.uid is not None:
            how = {**how, "preconditions": {"uid": name.uid}}
        question = Question(
            method="DELETE",
            path=resource.path(name.namespace, name.name),
            body=_encoded(how),
            doubts=False,
            behind=not awaited,
        )
        try:
            await self._api.ask(question)
        except Answered as answer:
            if answer.row.delete is Outcome.ABSENT:
                return
            rule = Rule(resource=resource, verbs=("delete",), namespace=self._scope(name.namespace))
            raise self._unavailable(answer, rule) from answer

    # ---- treatment of API errors

    def _refusal(self, answer: Answered, rule: Rule) -> Refused | Unavailable:
        """Return the error for a create or a patch."""
        row = answer.row
        if answer.is_too_large:
            return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", answer.message)
        if row.create in (Outcome.REFUSED, Outcome.NO_ROOM):
            return Refused(answer.code, answer.reason, answer.message)
        if answer.is_not_authorized:
            return Misconfigured(self._permissions.missing(rule, answer.message))
        if answer.is_not_served and not answer.genuine:
            whose = "training-operator" if rule.resource.group == JOBS.group else "gang scheduler"
            return Misconfigured(f"the cluster has no {rule.resource}; install the {whose}")
        said = f"the API server answers {refusal.add_remedy(str(answer))}"
        return Misconfigured(said) if row.misconfigured else Unavailable(said)

    @staticmethod
    def _lost_event(answer: Answered) -> Refused | Unavailable:
        """Return the error for an event: one that the API server rejects is not sent again."""
        if answer.genuine and not answer.is_passing:
            return Refused(answer.code, answer.reason, answer.message)
        return Unavailable(f"the API server answers {answer}")

    def _unavailable(self, answer: Answered, rule: Rule) -> Unavailable:
        """Return a transient error, also for a missing rule: an admin may add the rule before the retry."""
        if answer.is_not_authorized:
            return Unavailable(self._permissions.missing(rule, answer.message))
        return Unavailable(f"the API server answers {answer}")

    def _scope(self, namespace: str) -> str:
        """Return the namespace of the Role that needs a rule. Empty if the backend uses a ClusterRole."""
        return namespace if self._options.namespaces else ""

    # ---- watches

    async def follow(self, sink: Sink) -> None:
        """Send all records and then every change to the sink; see `Cluster.follow`. Errors are logged."""
        self._reflecting = self._reflectors(sink)
        tasks = [asyncio.create_task(reflector.run()) for reflector in self._reflecting]
        self._following.update(tasks)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()  # A reflector only ends with an unexpected exception.
        finally:
            await end(tasks)
            self._following.difference_update(tasks)

    def _reflectors(self, sink: Sink) -> Sequence[Reflector]:
        gatherings: dict[type[Record], Gathering] = {}
        for kind in KINDS:
            gatherings.setdefault(kind.record, Gathering(sink, kind.record))
        jobs, pods = gatherings[Job].complete, gatherings[Pod].complete
        # Only a placeholder pod itself contains the name of its job.
        after: dict[type[Record], tuple[asyncio.Event, ...]] = {PodGroup: (jobs,), Event: (jobs, pods)}
        places = [
            Place(
                kind=kind,
                namespace=namespace,
                part=gatherings[kind.record].part(),
                sight=self.sight,
                after=after.get(kind.record, ()),
            )
            for kind in KINDS
            for namespace in self._options.namespaces or ("",)
        ]
        return [Reflector(self._api, place, self._permissions, self._options) for place in places]

    async def close(self) -> None:
        """Stop all watches and close the connections."""
        await end([*self._following])
        await self._connection.close()


def resource_of(manifest: Manifest) -> Resource:
    """Return the resource of an object. All kinds that the backend creates have a regular plural."""
    group, _, version = text(manifest, "apiVersion").rpartition("/")
    plural = text(manifest, "kind").lower() + "s"
    if not are_names(*filter(None, [group]), version, plural):  # They become parts of a URL path.
        raise Refused(HTTPStatus.BAD_REQUEST, "BadRequest", f"{plural}.{group}/{version} is not a kind")
    return kinds.Resource(group=group, version=version, plural=plural)


def _pods_of(body: bytes) -> Sequence[Pod]:
    page = (_IN_PROTOBUF if envelope.is_wrapped(body) else _IN_JSON).page(body)
    return [each.record for each in page.items if isinstance(each.record, Pod)]


def _encoded(manifest: Manifest) -> bytes:
    return msgspec.json.encode(manifest, enc_hook=dict)
