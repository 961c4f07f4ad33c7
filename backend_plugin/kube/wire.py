"""Objects as they come in JSON: bytes in, the few fields that are read out.

Lives here: which fields these are, by kind. All others (managedFields, templates) are dropped while parsing;
what is left is read by `core.observed`, like the objects of any cluster. An object whose fields have other
types than the schema's is parsed as a whole, and the same readers make of it what they can. Does not: what
comes as protobuf, `pod_wire`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypedDict, TypeVar

import msgspec

from backend_plugin.core.reading import NOTHING, entries, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.kube import answers
from backend_plugin.kube.lines import Lines
from backend_plugin.kube.parsed import Change, Malformed, Page, Seen
from backend_plugin.shell.cluster import Record

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
    priority: Any
    queueName: Any
    queue: Any
    active: Any


class JobWire(TypedDict, total=False):
    """A PyTorchJob, as far as it is read."""

    metadata: _JobMeta
    spec: _JobSpec
    status: _JobStatus | None


_job: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(JobWire)


class EventWire(TypedDict, total=False):
    """An event of core/v1, as far as it is read."""

    metadata: _Meta
    involvedObject: _Owner
    reason: Any
    action: Any
    message: Any
    type: Any
    lastTimestamp: Any
    eventTime: Any
    series: Any


class GroupWire(TypedDict, total=False):
    """A PodGroup or a Workload, as far as it is read."""

    apiVersion: Any
    kind: Any
    metadata: _GroupMeta
    spec: _GroupSpec
    status: Any


class _Line(msgspec.Struct, Generic[T], frozen=True, gc=False):
    type: str
    object: T


class _Body(msgspec.Struct, Generic[T], frozen=True, gc=False):
    kind: str
    metadata: dict[str, Any]
    items: list[T] | None


class Parser:
    """A `Parser` of one kind."""

    def __init__(self, kind: Any, read: Callable[[Any], Record | None]) -> None:
        """`kind` is one of the types above, or of whole objects; `read` makes a record of what is ours."""
        self._line: msgspec.json.Decoder[_Line[Any]] = msgspec.json.Decoder(_Line[kind])
        self._body: msgspec.json.Decoder[_Body[Any]] = msgspec.json.Decoder(_Body[kind])
        self._read = read

    def parts(self, longest: int) -> Lines:
        """See `parsed.Parser`."""
        return Lines(longest)

    def change(self, part: bytes) -> Change:
        """See `parsed.Parser`."""
        try:
            said = self._line.decode(part)
            how, manifest = said.type, said.object
        except (msgspec.MsgspecError, RecursionError):
            whole = object_of(part)
            how, manifest = text(whole, "type"), section(whole, "object")
        if how == "ERROR":
            raise answers.of_event(part)
        return Change(how, self._seen(manifest))

    def page(self, body: bytes) -> Page:
        """See `parsed.Parser`."""
        try:
            said = self._body.decode(body)
            kind = said.kind
            meta: Manifest = said.metadata
            items: Sequence[Manifest] = said.items or ()
        except (msgspec.MsgspecError, RecursionError):
            whole = object_of(body)
            kind, meta, items = text(whole, "kind"), section(whole, "metadata"), _items(whole)
        # A proxy's page, and a `Status`, are objects as well; taken for a list, they would be an empty one.
        if not kind.endswith("List"):
            raise Malformed(f"not a list: {body[:80]!r}")
        return Page(
            items=map(self._seen, items),
            version=text(meta, "resourceVersion"),
            rest=text(meta, "continue"),
        )

    def _seen(self, manifest: Manifest) -> Seen:
        meta, record = metadata(manifest), self._read(manifest)
        named = record if record is not None and record.name else None
        name = named.name if named is not None else ""
        return Seen(text(meta, "namespace"), name, text(meta, "uid"), text(meta, "resourceVersion"), named)


def _items(whole: Manifest) -> Sequence[Manifest]:
    said = whole.get("items")
    found = entries(whole, "items")
    if said is not None and not (isinstance(said, list) and len(said) == len(found)):
        raise Malformed(f"not the items of a list: {str(said)[:80]}")
    return found


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


def job_of(body: bytes) -> Manifest:
    """What is read of a job; raises as `object_of` does."""
    try:
        job: Manifest = _job.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return object_of(body)
    return job


def metadata(manifest: Manifest) -> Manifest:
    """Its metadata; an empty one if there is none."""
    found = manifest.get("metadata")
    return found if isinstance(found, dict) else NOTHING


def owners(manifest: Manifest, kind: str) -> Iterator[str]:
    """The names of its owners of one kind."""
    for owner in entries(metadata(manifest), "ownerReferences"):
        if owner.get("kind") == kind:
            yield text(owner, "name")
