"""The interface that the server requires of a cluster, and its errors."""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from backend_plugin.core.errors import BackendError
from backend_plugin.core.job import OwnerReference
from backend_plugin.core.observed import Event, Job, Pod, PodGroup
from backend_plugin.core.runtimes import Runtime
from backend_plugin.core.values import Manifest

Record: TypeAlias = Job | Pod | Event | PodGroup


class ClusterUnavailable(BackendError):
    """The cluster did not respond, or returned a retryable status."""


class Misconfigured(ClusterUnavailable):
    """A role, namespace or API is missing; the request succeeds once an admin adds it."""


class NotDurable(ClusterUnavailable):
    """The cluster cannot store the change durably, for example on a full disk; a restart would lose it."""


class VersionConflict(ClusterUnavailable):
    """The object has changed since it was read; read it again."""


class AlreadyExists(BackendError):
    """An object of that name exists; it may belong to another attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectName:
    """The name of an object; with a uid, it does not match a later object of the same name."""

    namespace: str
    name: str
    uid: str | None = None
    dialect: str = ""
    """The kind of a job, PyTorchJob or TrainJob; empty for PyTorchJob."""


def build_job_name(job: Job) -> ObjectName:
    """Return the name of a job with its uid, so that no later job of the same name matches."""
    return ObjectName(namespace=job.namespace, name=job.name, uid=job.uid or None, dialect=job.dialect)


def build_pod_name(namespace: str, pod: Pod) -> ObjectName:
    """Return the name of a pod with its uid, so that no later pod of the same name matches."""
    return ObjectName(namespace=namespace, name=pod.name, uid=pod.uid or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """The selection of log lines of one container."""

    container: str
    follow: bool = False
    """Also return new lines, until the container has ended and will not restart."""
    tail: int | None = None
    """Number of lines before the end at which to start; None: start at the first line."""
    previous: bool = False
    """Return the log of the container run before the last restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line of a container's output, without its newline."""

    time: str
    """The time of the line in RFC 3339, with nanoseconds if available."""
    text: str


class Sink(Protocol):
    """The consumer of a watch, which receives the objects of a cluster in the order of the changes."""

    def replace_records(self, kind: type[Record], records: Iterable[tuple[str, Record]]) -> None:
        """Replace all received objects of a kind by a complete list of (namespace, object) pairs."""

    def put_record(self, namespace: str, record: Record) -> None:
        """Add a created or changed object to the received objects, in place of its earlier version."""

    def drop_record(self, kind: type[Record], name: ObjectName) -> None:
        """Remove an object from the received objects, because it was deleted in the cluster."""


class Cluster(Protocol):
    """A cluster that runs training jobs.

    Only jobs and pods with the label of this backend are used, except by `list_foreign_jobs`.

    A prerequisite is an object that is created before its job. A companion object, such as a pod group, is
    created after its job.

    Requests raise `ClusterUnavailable` for transient errors, except `find_owner`. Requests that create or
    change an object also raise `RequestRejected`.
    """

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object durably. Return it as stored, with at least the fields that this server reads.

        Raises:
            AlreadyExists: If an object of that name exists.
        """

    async def get(self, name: ObjectName, *, awaited: bool = True) -> Manifest | None:
        """Return a job as the API server has it now, not from a cache; None if it does not exist.

        Args:
            name: The job.
            awaited: True if a caller waits for the result; otherwise the request may be delayed.
        """

    async def list_pods(self, job: ObjectName) -> Sequence[Pod] | None:
        """Return the pods of a job as the API server has them now, not from a cache.

        Return None if the server has no permission to list pods; the class `WatchStatus` reports that.
        """

    async def patch(self, name: ObjectName, patch: Manifest, *, awaited: bool = False) -> None:
        """Apply a merge patch (RFC 7386) to a job; has no effect if the job does not exist.

        If no caller waits for the request (`awaited` is False), it may be delayed without limit.

        Raises:
            VersionConflict: If the patch contains a `resourceVersion`, and the job has another one.
        """

    async def delete(self, name: ObjectName, *, awaited: bool = False) -> None:
        """Delete a job if it exists; its pods are deleted in the background.

        If no caller waits for the request (`awaited` is False), it may be delayed without limit.
        """

    async def delete_pod(self, name: ObjectName) -> None:
        """Delete a pod with its own grace period; has no effect if it does not exist."""

    async def stop_pod(self, name: ObjectName) -> None:
        """End a pod with its own grace period, and keep its logs; has no effect if it does not exist.

        Raises:
            RequestRejected: If the cluster rejects the change.
            Misconfigured: If a permission is missing.
        """

    async def patch_object(self, manifest: Manifest, patch: Manifest) -> None:
        """Apply a merge patch to the object with the kind, name and uid of `manifest`, if it exists."""

    async def list_prerequisites(self) -> Sequence[Manifest]:
        """Return kind and metadata of the prerequisites of all jobs, such as TrainingRuntimes.

        They are read from the API server, not from a cache. A prerequisite that already has an owner may be
        left out.
        """

    async def delete_companion(self, manifest: Manifest) -> None:
        """Delete a companion object (such as a pod group) or a prerequisite of a job, if it exists."""

    async def record_event(self, event: Manifest) -> None:
        """Create an event about a job; has no effect if an event of that name exists.

        A missing permission is logged and raises no error.
        """

    async def list_pod_templates(self, namespaces: Sequence[str], name: str) -> Sequence[Manifest]:
        """Return the PodTemplates with the name `name` in `namespaces`."""

    async def list_foreign_jobs(self, name: str = "") -> Sequence[Job]:
        """Return the jobs that other clients created, which have no label of this backend.

        If `name` is given, return only the jobs with this name.

        The jobs are read from the API server, not from a cache. The conditions of each job are derived from
        its manifest alone: its pods are not read.
        """

    async def list_runtimes(self) -> Sequence[Runtime]:
        """Return the training runtimes of all kinds in the cluster, as the API server has them now."""

    async def find_owner(self, namespace: str, execution: str) -> OwnerReference | None:
        """Return an owner reference to an execution's workflow object, for its jobs; None if not found.

        This method never raises an error, because a job can also be created without an owner.
        """

    async def watch(self, sink: Sink) -> None:
        """Send one list of all objects of each `Record` kind to `sink`, then each change, until cancelled."""

    def read_log(self, pod: ObjectName, request: LogRequest) -> AsyncIterator[LogLine]:
        """Yield the log lines of a container; yields none if the pod does not exist."""

    async def close(self) -> None:
        """Release all resources; no method may be called afterwards."""
