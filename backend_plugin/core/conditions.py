"""Records of conditions and pod groups, with readers that accept any JSON and never raise."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from backend_plugin.core.reading import entries, moment, number, section, shared, text, texts, word, words
from backend_plugin.core.values import Manifest


class Condition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A condition of an object, identified by its type and not by its position in the list."""

    type: str
    true: bool
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    """`lastTransitionTime`."""


class Limit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A reason why a queue does not admit a pod group, with the quantities of each resource as written."""

    reason: str = ""
    message: str = ""
    queue: str = ""
    asked: Mapping[str, str] = msgspec.field(default_factory=dict)
    used: Mapping[str, str] = msgspec.field(default_factory=dict)
    limit: Mapping[str, str] = msgspec.field(default_factory=dict)


class PodGroup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The object of a gang scheduler or a queue for a job: a PodGroup, or a Kueue Workload."""

    kind: str
    api: str = ""
    """The API group, which identifies the scheduler; empty if unknown."""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    foreign: bool = False
    """True if it does not belong to the job: it only has the expected name, or is in the same queue."""
    queue: str = ""
    priority: int = 0
    active: bool = True
    """False if a user or Kueue deactivated it."""
    phase: str = ""
    created: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    checks: tuple[Condition, ...] = ()
    """Kueue's admission checks, by name; true once the check is ready."""
    limits: tuple[Limit, ...] = ()
    ahead: int | None = None
    """The number of groups that its queue admits before it; None if unknown."""


def read_conditions(status: Manifest) -> tuple[Condition, ...]:
    """Return the conditions of a status of any kind."""
    return tuple(
        Condition(
            type=word(each, "type"),
            true=each.get("status") in ("True", True),  # Unquoted in YAML it is a boolean.
            reason=word(each, "reason"),
            message=words(each, "message"),
            since=moment(each, "lastTransitionTime"),
        )
        for each in entries(status, "conditions")
    )


def read_pod_group(manifest: Manifest) -> PodGroup:
    """Return the record of a PodGroup of any scheduler, or of a Kueue Workload."""
    metadata, spec, status = (section(manifest, key) for key in ("metadata", "spec", "status"))
    reasons = [why for each in entries(status, "schedulingConditions") for why in entries(each, "reasons")]
    return PodGroup(
        kind=text(manifest, "kind") or "PodGroup",
        api=shared(text(manifest, "apiVersion").rpartition("/")[0]),
        name=text(metadata, "name"),
        namespace=shared(text(metadata, "namespace")),
        uid=text(metadata, "uid"),
        queue=text(spec, "queueName") or text(spec, "queue"),
        priority=number(spec, "priority") or 0,
        active=spec.get("active") is not False,
        phase=word(status, "phase"),
        created=moment(metadata, "creationTimestamp"),
        conditions=read_conditions(status),
        checks=tuple(map(_check, entries(status, "admissionChecks"))),
        limits=tuple(map(_limit, reasons)),
    )


def _check(said: Manifest) -> Condition:
    state = word(said, "state")
    return Condition(
        type=word(said, "name"),
        true=state == "Ready",
        reason=state,
        message=words(said, "message"),
        since=moment(said, "lastTransitionTime"),
    )


def _limit(why: Manifest) -> Limit:
    said = section(why, "details", "queueDetails")
    return Limit(
        reason=text(why, "reason"),
        message=words(why, "message"),
        queue=text(said, "name"),
        asked=texts(said, "podGroupRequestedResources"),
        used=texts(said, "queueAllocatedResources"),
        limit=texts(said, "queueResourceLimits"),
    )
