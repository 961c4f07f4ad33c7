"""Pods, of whose changes there are more than of all others: bytes → fields of a type → the record.

Lives here: the fields with the types of their schema, and the record of them, which is that of
`core.observed.read_pod` in a third of its time. A pod that is otherwise does not parse, and is read by that
one. Does not: other kinds.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Annotated, Final

import msgspec

from backend_plugin.core.observed import Condition, Container, Pod, Termination
from backend_plugin.core.reading import number, parse_moment, shared

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LONGEST: Final = 4_000
"""Characters of a message, as in `core.reading`."""
_int32 = Annotated[int, msgspec.Meta(ge=-(2**31) + 1, le=2**31 - 1)]


class _Wire(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Names as the schema has them."""


class _Owner(_Wire, frozen=True, gc=False):
    uid: str = ""


class _Labels(_Wire, frozen=True, gc=False):
    job_name: str = msgspec.field(default="", name="training.kubeflow.org/job-name")
    replica_type: str = msgspec.field(default="", name="training.kubeflow.org/replica-type")
    replica_index: str = msgspec.field(default="", name="training.kubeflow.org/replica-index")


class _Meta(_Wire, frozen=True, gc=False):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: _int32 | None = None
    labels: _Labels = _Labels()
    owner_references: tuple[_Owner, ...] = ()


class _Condition(_Wire, frozen=True, gc=False):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _Running(_Wire, frozen=True, gc=False):
    started_at: str | None = None


class _Waiting(_Wire, frozen=True, gc=False):
    reason: str = ""
    message: str = ""


class _Terminated(_Wire, frozen=True, gc=False):
    exit_code: _int32 | None = None
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class _State(_Wire, frozen=True, gc=False):
    running: _Running | None = None
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class _Container(_Wire, frozen=True, gc=False):
    name: str
    image: str = ""
    id: str = msgspec.field(default="", name="containerID")
    state: _State = _State()
    last_state: _State = _State()
    restart_count: _int32 = 0


class _Spec(_Wire, frozen=True, gc=False):
    node_name: str = ""
    hostname: str = ""


class _Status(_Wire, frozen=True, gc=False):
    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    conditions: tuple[_Condition, ...] = ()
    container_statuses: tuple[_Container, ...] = ()
    init_container_statuses: tuple[_Container, ...] = ()


class PodWire(_Wire, frozen=True, gc=False):
    """A pod, as far as it is read, of the schema's types."""

    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


def record(wire: PodWire) -> Pod:
    """As `core.observed.read_pod` reads the same pod."""
    meta, status = wire.metadata, wire.status
    labels, index = meta.labels, meta.labels.replica_index
    by_type = {condition.type: condition for condition in status.conditions}
    disrupted = by_type.get("DisruptionTarget")
    return Pod(
        name=shared(meta.name),
        uid=meta.uid,
        job_name=shared(labels.job_name),
        owners=tuple(shared(owner.uid) for owner in meta.owner_references),
        role=shared(labels.replica_type.lower()),
        index=max(0, number({"index": index}, "index") or 0) if index else 0,
        created=_moment(meta.creation_timestamp),
        deleted=_ordered(meta),
        node=shared(wire.spec.node_name),
        hostname=shared(wire.spec.hostname or meta.name),
        phase=shared(status.phase),
        reason=shared(status.reason),
        message=status.message[:_LONGEST],
        started=_moment(status.start_time),
        scheduled=_condition(by_type.get("PodScheduled")),
        disrupted=_condition(disrupted) if disrupted is not None and disrupted.status == "True" else None,
        ready=_condition(by_type.get("Ready")),
        containers=_containers(status.container_statuses, init=False),
        init_containers=_containers(status.init_container_statuses, init=True),
    )


def _moment(said: str | None) -> datetime | None:
    return parse_moment(said) if said is not None else None


def _ordered(meta: _Meta) -> datetime | None:
    # What stands there is the end of the grace that a pod is given.
    if meta.deletion_timestamp is None or (at := parse_moment(meta.deletion_timestamp)) is None:
        return None
    grace = timedelta(seconds=max(0, meta.deletion_grace_period_seconds or 0))
    return at - grace if at - _EPOCH > grace else at


def _condition(said: _Condition | None) -> Condition | None:
    if said is None:
        return None
    return Condition(
        type=shared(said.type),
        true=said.status == "True",
        reason=shared(said.reason),
        message=said.message[:_LONGEST],
        since=_moment(said.last_transition_time),
    )


def _containers(said: Sequence[_Container], *, init: bool) -> tuple[Container, ...]:
    return tuple([_container(each, init=init) for each in said])


def _container(said: _Container, *, init: bool) -> Container:
    state, waiting, running = said.state, said.state.waiting, said.state.running
    return Container(
        name=shared(said.name),
        image=shared(said.image),
        id=said.id,
        init=init,
        waiting=shared(waiting.reason) if waiting is not None else "",
        waiting_message=waiting.message[:_LONGEST] if waiting is not None else "",
        running_since=_moment(running.started_at) if running is not None else None,
        ended=_termination(state.terminated),
        last=_termination(said.last_state.terminated),
        restarts=max(0, said.restart_count),
    )


def _termination(said: _Terminated | None) -> Termination | None:
    if said is None:
        return None
    return Termination(
        exit_code=said.exit_code,
        reason=shared(said.reason),
        message=said.message[:_LONGEST],
        started=_moment(said.started_at),
        finished=_moment(said.finished_at),
    )
