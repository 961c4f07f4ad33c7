"""Objects as they come over the wire: bytes in, the few fields that are read out.

Lives here: which fields these are, by kind. All others (managedFields, templates) are dropped while parsing;
what is left is read by `core.observed`, like the objects of any cluster. An object whose fields have other
types than the schema's is parsed as a whole, and the same readers make of it what they can. Does not: pods,
which have types of their own, `pod_wire`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypedDict, TypeVar

import msgspec

from backend_plugin.core.errors import BackendError
from backend_plugin.core.reading import NOTHING, entries, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.kube.pod_wire import PodWire

T = TypeVar("T")


# Scalars are anything: the readers take what they can use.
class _Owner(TypedDict, total=False):
    kind: Any
    name: Any
    uid: Any


class _Meta(TypedDict, total=False):
    name: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    deletionGracePeriodSeconds: Any


class _JobMeta(_Meta, total=False):
    annotations: dict[str, Any] | None
    ownerReferences: list[_Owner] | None


class _GroupMeta(_Meta, total=False):
    ownerReferences: list[_Owner] | None


class _Condition(TypedDict, total=False):
    type: Any
    status: Any
    reason: Any
    message: Any
    lastTransitionTime: Any


class _Replicas(TypedDict, total=False):
    replicas: Any
    restartPolicy: Any


class _RunPolicy(TypedDict, total=False):
    cleanPodPolicy: Any
    ttlSecondsAfterFinished: Any
    activeDeadlineSeconds: Any


class _JobSpec(TypedDict, total=False):
    pytorchReplicaSpecs: dict[str, _Replicas]
    runPolicy: _RunPolicy | None
    elasticPolicy: dict[str, Any] | None
    nprocPerNode: Any


class _JobStatus(TypedDict, total=False):
    conditions: list[_Condition] | None
    startTime: Any
    completionTime: Any


class _GroupSpec(TypedDict, total=False):
    queueName: Any
    queue: Any


class JobWire(TypedDict, total=False):
    """A PyTorchJob, as far as it is read."""

    metadata: _JobMeta
    spec: _JobSpec
    status: _JobStatus | None


class EventWire(TypedDict, total=False):
    """An event of core/v1, as far as it is read."""

    metadata: _Meta
    involvedObject: _Owner
    reason: Any
    message: Any
    type: Any
    lastTimestamp: Any
    eventTime: Any
    series: Any


class GroupWire(TypedDict, total=False):
    """A PodGroup or a Workload, as far as it is read."""

    kind: Any
    metadata: _GroupMeta
    spec: _GroupSpec
    status: Any


class Malformed(BackendError):
    """This is not what an API server sends: a stream that broke off, or somebody else's words."""


Wire: TypeAlias = PodWire | Manifest
"""An object, as far as it is read; a manifest for most kinds, and for whatever has other types."""


class Identity(NamedTuple):
    """Which object it is, and as of when."""

    namespace: str
    uid: str
    version: str


def identity(wire: Wire) -> Identity:
    """Of any object."""
    if isinstance(wire, PodWire):
        return Identity(wire.metadata.namespace, wire.metadata.uid, wire.metadata.resource_version)
    meta = metadata(wire)
    return Identity(text(meta, "namespace"), text(meta, "uid"), text(meta, "resourceVersion"))


class Change(NamedTuple):
    """One line of a watch."""

    type: str
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""
    object: Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some objects of a list."""

    items: Sequence[Wire]
    version: str
    """The list's `resourceVersion`: a watch that begins there misses nothing."""
    rest: str
    """What to `continue` with; empty: that was all."""


class _Line(msgspec.Struct, Generic[T], frozen=True, gc=False):
    type: str
    object: T


class _Body(msgspec.Struct, Generic[T], frozen=True, gc=False):
    metadata: dict[str, Any]
    items: list[T] | None


class Parser:
    """Parses the objects of one kind."""

    def __init__(self, kind: Any) -> None:
        """`kind` is one of the types above, or `PodWire`."""
        self._line: msgspec.json.Decoder[_Line[Any]] = msgspec.json.Decoder(_Line[kind])
        self._body: msgspec.json.Decoder[_Body[Any]] = msgspec.json.Decoder(_Body[kind])

    def change(self, line: bytes) -> Change:
        """One line of a watch.

        Raises:
            Malformed: If it is no object in JSON.
        """
        try:
            said = self._line.decode(line)
        except (msgspec.MsgspecError, RecursionError):
            whole = object_of(line)
            return Change(text(whole, "type"), section(whole, "object"))
        return Change(said.type, said.object)

    def page(self, body: bytes) -> Page:
        """One page of a list; raises as `change` does."""
        try:
            said = self._body.decode(body)
        except (msgspec.MsgspecError, RecursionError):
            whole = object_of(body)
            return _page(section(whole, "metadata"), entries(whole, "items"))
        return _page(said.metadata, said.items or ())


def _page(meta: Manifest, items: Sequence[Wire]) -> Page:
    return Page(items=items, version=text(meta, "resourceVersion"), rest=text(meta, "continue"))


def object_of(body: bytes) -> Manifest:
    """A whole object.

    Raises:
        Malformed: If it is none.
    """
    try:
        said = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Malformed(f"not JSON: {error}") from error
    if not isinstance(said, dict):
        raise Malformed(f"not an object: {body[:80]!r}")
    return said


def metadata(manifest: Manifest) -> Manifest:
    """Its metadata; an empty one if there is none."""
    found = manifest.get("metadata")
    return found if isinstance(found, dict) else NOTHING


def owners(manifest: Manifest, kind: str) -> Iterator[str]:
    """The names of its owners of one kind."""
    for owner in entries(metadata(manifest), "ownerReferences"):
        if owner.get("kind") == kind:
            yield text(owner, "name")
