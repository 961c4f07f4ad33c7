"""What the service may ask of any cluster, and how a cluster says no.

Lives here: the protocol and its errors. Does not: any cluster; see `backend_plugin.embedded`.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from backend_plugin.core.errors import BackendError
from backend_plugin.core.job import OwnerReference
from backend_plugin.core.observed import Event, Job, Pod, PodGroup
from backend_plugin.core.values import Manifest

Record: TypeAlias = Job | Pod | Event | PodGroup


class Unavailable(BackendError):
    """The cluster did not answer, or asked us to come back: the same question may be answered later."""


class Misconfigured(Unavailable):
    """The platform lacks a role, a namespace or a kind; the request succeeds once an operator adds it."""


class NotDurable(Unavailable):
    """The cluster cannot store the change, for example on a full disk; a restart would forget it."""


class AlreadyExists(BackendError):
    """There is an object of that name; whose it is remains to be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """An object of a namespace; with a uid that one only, not a later one of the same name."""

    namespace: str
    name: str
    uid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """Which lines of one container are wanted."""

    container: str
    follow: bool = False
    """Wait for more until the container has ended for good."""
    tail: int | None = None
    """Begin so many lines before the end; None: at the beginning."""
    previous: bool = False
    """Of the run before its last restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of a container's output, without its end."""

    time: str
    """RFC 3339, with nanoseconds where known."""
    text: str


class Sink(Protocol):
    """Who is told what a cluster holds, in the order in which it came to be so."""

    def replace(self, kind: type[Record], records: Iterable[tuple[str, Record]]) -> None:
        """All objects of one kind, with their namespaces; what is not among them is gone."""

    def put(self, namespace: str, record: Record) -> None:
        """An object that is new or has changed."""

    def drop(self, kind: type[Record], name: Name) -> None:
        """An object that is gone."""


class Cluster(Protocol):
    """A place where PyTorchJobs run. Only jobs and pods that carry our label are seen and touched.

    Every method raises `Unavailable` for passing trouble; `create` and `patch` raise `Refused`, too.
    """

    async def create(self, manifest: Manifest) -> Manifest:
        """Make an object; it is durable when this returns. Returns what is read of it, as it is stored.

        Raises:
            AlreadyExists: If there is one of that name.
        """

    async def get(self, name: Name) -> Manifest | None:
        """A PyTorchJob as it is now, asked of the cluster itself; None: there certainly is none."""

    async def pods(self, namespace: str, job: str) -> Sequence[Pod] | None:
        """The replicas of a PyTorchJob as they are now, asked of the cluster itself.

        None: we may not see them; that is told elsewhere.
        """

    async def patch(self, name: Name, patch: Manifest, *, awaited: bool = False) -> None:
        """Merge into a PyTorchJob (RFC 7386); nothing happens if there is none.

        What nobody has `awaited` may wait for its turn, however long that is.
        """

    async def delete(self, name: Name, *, awaited: bool = False) -> None:
        """Delete a PyTorchJob and, in the background, its pods; nothing happens if there is none.

        What nobody has `awaited` may wait for its turn, however long that is.
        """

    async def delete_pod(self, name: Name) -> None:
        """Delete a pod, with its own grace period; nothing happens if there is none."""

    async def delete_companion(self, manifest: Manifest) -> None:
        """Delete an object that stands beside a job; nothing happens if there is none."""

    async def record(self, event: Manifest) -> None:
        """Write an event about a job, which nobody depends on; nothing happens if there is one of that name.

        Nothing happens either where it is not permitted; that is told elsewhere.
        """

    async def pod_templates(self, namespaces: Sequence[str], name: str) -> Sequence[Manifest]:
        """The PodTemplates of that name in these namespaces."""

    async def owner(self, namespace: str, execution: str) -> OwnerReference | None:
        """Flyte's object of an execution, with which its jobs are to go; None if there is none to be seen.

        A job is made without one, too: this never raises.
        """

    async def follow(self, sink: Sink) -> None:
        """Tell everything that there is, one `replace` a kind, then every change, until cancelled."""

    def log(self, pod: Name, request: LogRequest) -> AsyncIterator[LogLine]:
        """What a container wrote; nothing if there is no such pod (any more)."""

    async def close(self) -> None:
        """Let go of everything; no method is called afterwards."""
