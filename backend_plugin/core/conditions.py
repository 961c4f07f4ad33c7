"""The conditions of objects of any kind, and what gang schedulers and queues say in objects of their own.

Lives here: one record each, and its reader, which never fails. Does not: what it means; jobs, pods and
events, which are in `observed`.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from backend_plugin.core.reading import entries, moment, number, section, shared, text, texts, word, words
from backend_plugin.core.values import Manifest


class Condition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One entry of `status.conditions`; never to be told apart by its position."""

    type: str
    true: bool
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    """`lastTransitionTime`."""


class Limit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why a queue holds a group back, where it says so with numbers; by resource, as they were written."""

    reason: str = ""
    message: str = ""
    queue: str = ""
    asked: Mapping[str, str] = msgspec.field(default_factory=dict)
    used: Mapping[str, str] = msgspec.field(default_factory=dict)
    limit: Mapping[str, str] = msgspec.field(default_factory=dict)


class PodGroup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a gang scheduler or a queue says of the job: a PodGroup of any of them, or a Kueue Workload."""

    kind: str
    api: str = ""
    """The API group, which tells whose it is; empty where nobody has said."""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    foreign: bool = False
    """It is no group of a job of ours: it has the name of one, or stands in the same queue."""
    queue: str = ""
    priority: int = 0
    active: bool = True
    """False: it was taken out of its queue, by a person or by Kueue itself."""
    phase: str = ""
    created: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    checks: tuple[Condition, ...] = ()
    """Those that are to agree once a queue has room for it: by their names, true once they do."""
    limits: tuple[Limit, ...] = ()
    ahead: int | None = None
    """How many others its queue lets go before it; None where nobody counts."""


def read_conditions(status: Manifest) -> tuple[Condition, ...]:
    """The conditions of any kind's status."""
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
    """A PodGroup of any scheduler, or a Kueue Workload."""
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
