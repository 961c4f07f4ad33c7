"""Records of conditions and pod groups, with readers that accept any JSON and never raise."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from backend_plugin.core.reading import (
    get_bounded_text,
    get_int,
    get_interned,
    get_mapping,
    get_mappings,
    get_text,
    get_text_map,
    get_time,
    intern_text,
)
from backend_plugin.core.values import Manifest


class Condition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A condition of an object, identified by its type and not by its position in the list."""

    type: str
    true: bool
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    """The `lastTransitionTime` of the condition."""


class QueueLimit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A reason why a queue does not admit a pod group, with quantities as texts in the scheduler's format."""

    reason: str = ""
    message: str = ""
    queue: str = ""
    requested: Mapping[str, str] = msgspec.field(default_factory=dict)
    used: Mapping[str, str] = msgspec.field(default_factory=dict)
    limit: Mapping[str, str] = msgspec.field(default_factory=dict)


class PodGroup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The object that a gang scheduler or a queue uses for a job: a PodGroup, or a Kueue Workload."""

    kind: str
    api: str = ""
    """The API group, which identifies the scheduler; empty if unknown."""
    version: str = ""
    name: str = ""
    """The name of the job that the pod group is for; the name of the object if the job is unknown."""
    object_name: str = ""
    """The name of the object if `name` is the name of the job; otherwise empty."""
    namespace: str = ""
    uid: str = ""
    foreign: bool = False
    """True if the pod group does not belong to the job, but has the expected name or the same queue."""
    queue: str = ""
    priority: int = 0
    active: bool = True
    """False if a user or Kueue has deactivated the Workload."""
    phase: str = ""
    created: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    checks: tuple[Condition, ...] = ()
    """Kueue's admission checks: `type` is the name of a check, and `true` means that the check is ready."""
    limits: tuple[QueueLimit, ...] = ()
    ahead: int | None = None
    """The number of pod groups that the queue admits before this pod group; None if unknown."""


def read_conditions(status: Manifest) -> tuple[Condition, ...]:
    """Return the conditions in the status of an object of any kind."""
    return tuple(
        Condition(
            type=get_interned(each, "type"),
            true=each.get("status") in ("True", True),  # In YAML, an unquoted True is a boolean.
            reason=get_interned(each, "reason"),
            message=get_bounded_text(each, "message"),
            since=get_time(each, "lastTransitionTime"),
        )
        for each in get_mappings(status, "conditions")
    )


def read_pod_group(manifest: Manifest) -> PodGroup:
    """Read a PodGroup of any scheduler, or a Kueue Workload, as the API server returns it; never raises."""
    metadata, spec = get_mapping(manifest, "metadata"), get_mapping(manifest, "spec")
    status = get_mapping(manifest, "status")
    reasons = [
        why for each in get_mappings(status, "schedulingConditions") for why in get_mappings(each, "reasons")
    ]
    return PodGroup(
        kind=get_text(manifest, "kind") or "PodGroup",
        api=intern_text(get_text(manifest, "apiVersion").rpartition("/")[0]),
        version=intern_text(get_text(manifest, "apiVersion").rpartition("/")[2]),
        name=get_text(metadata, "name"),
        namespace=intern_text(get_text(metadata, "namespace")),
        uid=get_text(metadata, "uid"),
        queue=get_text(spec, "queueName") or get_text(spec, "queue"),
        priority=get_int(spec, "priority") or 0,
        active=spec.get("active") is not False,
        phase=get_interned(status, "phase"),
        created=get_time(metadata, "creationTimestamp"),
        conditions=read_conditions(status),
        checks=tuple(map(_read_admission_check, get_mappings(status, "admissionChecks"))),
        limits=tuple(map(_read_queue_limit, reasons)),
    )


def _read_admission_check(check: Manifest) -> Condition:
    state = get_interned(check, "state")
    return Condition(
        type=get_interned(check, "name"),
        true=state == "Ready",
        reason=state,
        message=get_bounded_text(check, "message"),
        since=get_time(check, "lastTransitionTime"),
    )


def _read_queue_limit(explanation: Manifest) -> QueueLimit:
    details = get_mapping(explanation, "details", "queueDetails")
    return QueueLimit(
        reason=get_text(explanation, "reason"),
        message=get_bounded_text(explanation, "message"),
        queue=get_text(details, "name"),
        requested=get_text_map(details, "podGroupRequestedResources"),
        used=get_text_map(details, "queueAllocatedResources"),
        limit=get_text_map(details, "queueResourceLimits"),
    )
