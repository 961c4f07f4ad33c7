"""What a job, its pods and all that is said about them amount to.

Lives here: objects → `JobStatus`, conditions by type, never by position. Does not: what Flyte should
believe, and for how long anything is borne.
"""

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import structs

from backend_plugin.core import blame, deaths, notes, shortage, waiting
from backend_plugin.core.deaths import Death
from backend_plugin.core.error_files import ErrorFile
from backend_plugin.core.observed import Condition, Event, Job, Observed, Pod, is_replica
from backend_plugin.core.scheduling import asks
from backend_plugin.core.waits import Note, Stage, Wait
from kfpytorch_common.causes import Cause


class State(enum.Enum):
    """How far a job has come, by its operator's conditions, and without any by what else is known."""

    UNSEEN = "unseen"
    """No operator has written a condition."""
    CREATED = "created"
    """Seen; its pods are not all made."""
    SUSPENDED = "suspended"
    ADMITTED = "admitted"
    """All its pods were made."""
    RUNNING = "running"
    RESTARTING = "restarting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DELETED = "deleted"
    """It is being deleted before its end."""
    GONE = "gone"
    """There is none (any more): deleted by somebody, or after its time to live."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self in (State.SUCCEEDED, State.FAILED, State.DELETED, State.GONE)


class JobStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job at one moment."""

    state: State
    job: Job | None
    pods: tuple[Pod, ...] = ()
    """Its replicas: the master first, then by number."""
    total: int = 0
    ready: int = 0
    condition: Condition | None = None
    """The one that says its state."""
    has_run: bool = False
    """The operator has seen it run, now or before."""
    has_been_suspended: bool = False
    has_been_held: bool = False
    """A scheduler, a queue or the API server has said something about why it waits."""
    missing: bool = False
    """Replicas that were made are not there."""
    replaced: tuple[str, ...] = ()
    """Replicas made after the first ones were all there."""
    enough: bool = True
    """The training may have begun: it needs no replica of the first set that has yet to run."""
    waits: tuple[Wait, ...] = ()
    notes: tuple[Note, ...] = ()
    """What is not as it was asked for, which nobody else says aloud."""
    death: Death | None = None
    """The one that the others follow from, once it has ended."""
    dead: int = 0
    """How many replicas ended badly."""
    unsettled: bool = False
    """It succeeded, and a restarted replica with an old error has not ended yet."""
    outputs: bool | None = None
    looking: bool = False
    """Somebody is reading the files that it has left."""


def read(observed: Observed, exit_codes: Mapping[int, Cause]) -> JobStatus:
    """All that the objects say; the same for the same objects, whoever asks and when."""
    job = observed.job
    pods = _own(observed)
    if job is None:
        return _ended(observed, _of_gone(observed), pods, exit_codes)
    by_type = _by_type(job)
    state = _state(job, by_type, observed)
    if state.is_over:
        return _ended(observed, state, pods, exit_codes)
    return _living(observed, by_type, state, pods, exit_codes)


def _of_gone(observed: Observed) -> State:
    """An end that the operator has told outlives the job by an hour; its time to live may be nothing."""
    end = _remembered(observed)
    if end is None:
        return State.GONE
    done = end.type == "Succeeded" and observed.outputs is not False
    return State.SUCCEEDED if done else State.FAILED if end.type == "Failed" else State.GONE


def _by_type(job: Job) -> Mapping[str, Condition]:
    return {condition.type: condition for condition in job.conditions}


def _own(observed: Observed) -> tuple[Pod, ...]:
    """The job's pods, in order; not a stranger of the same name, nor a placeholder."""
    job = observed.job
    own = [pod for pod in observed.pods if pod.role and (job is None or is_replica(pod, job))]
    return tuple(sorted(own, key=lambda pod: (pod.role, pod.index, pod.name)))


def _state(job: Job, by_type: Mapping[str, Condition], observed: Observed) -> State:
    true = {kind for kind, condition in by_type.items() if condition.true}
    # An elastic job may be both: one replica ended well and one badly. Outputs say that the work was done.
    if "Succeeded" in true and ("Failed" not in true or observed.outputs):
        return State.SUCCEEDED
    for kind, state in _BY_CONDITION:
        if kind in true and (state is State.FAILED or not job.deleting):
            return state
    if job.deleting:
        return State.DELETED
    if not by_type and job.started is None:
        return State.UNSEEN
    return State.CREATED if job.started is None else State.ADMITTED


_BY_CONDITION = (
    ("Failed", State.FAILED),
    ("Suspended", State.SUSPENDED),  # The operator leaves Restarting as it is when it suspends.
    ("Restarting", State.RESTARTING),
    ("Running", State.RUNNING),
)


def _living(
    observed: Observed,
    by_type: Mapping[str, Condition],
    state: State,
    pods: tuple[Pod, ...],
    exit_codes: Mapping[int, Cause],
) -> JobStatus:
    job = observed.job
    assert job is not None, "only called where there is one"  # noqa: S101 - for the type checker.
    has_run = "Running" in by_type or "Restarting" in by_type
    suspended = "Suspended" in by_type
    present = ready = 0
    yet_to_run = False
    replaced = []
    for pod in pods:
        present += pod.deleted is None
        ready += _is_ready(pod)
        if _is_replacement(pod, job):
            replaced.append(pod.replica)
        elif pod.phase in ("Pending", "") and not suspended and _is_first(pod, job):
            yet_to_run = True
    missing = job.started is not None and present < job.replicas
    return JobStatus(
        state=state,
        job=job,
        pods=pods,
        total=job.replicas,
        ready=ready,
        condition=by_type.get(_WORDS.get(state, "")),
        has_run=has_run,
        has_been_suspended=suspended,
        has_been_held=_has_been_held(observed, pods),
        missing=missing,
        replaced=tuple(replaced),
        enough=not yet_to_run or job.scales or missing or bool(replaced),
        waits=_waits(observed, pods, state, exit_codes),
        notes=notes.notes(observed, pods),
        outputs=observed.outputs,
    )


_WORDS = {
    State.CREATED: "Created",
    State.ADMITTED: "Created",
    State.SUSPENDED: "Suspended",
    State.RESTARTING: "Restarting",
    State.RUNNING: "Running",
    State.SUCCEEDED: "Succeeded",
    State.FAILED: "Failed",
}


def _is_ready(pod: Pod) -> bool:
    return pod.phase == "Running" and pod.deleted is None and (pod.ready is None or pod.ready.true)


def _is_replacement(pod: Pod, job: Job) -> bool:
    """Made after the operator had made all: it takes the place of one that failed or was deleted."""
    return job.started is not None and pod.created is not None and pod.created > job.started


def _is_first(pod: Pod, job: Job) -> bool:
    """Whether it is known to be of the first, and has never run; without times it may be a replacement."""
    if pod.deleted is not None or pod.created is None or job.started is None:
        return False
    return not any(container.ever_started for container in pod.containers)


def _has_been_held(observed: Observed, pods: tuple[Pod, ...]) -> bool:
    return (
        any(group.phase or group.conditions for group in observed.pod_groups)
        or any(pod.scheduled is not None for pod in pods)
        or any(event.warning and event.reason.startswith("FailedCreate") for event in observed.events)
    )


def _waits(
    observed: Observed, pods: tuple[Pod, ...], state: State, exit_codes: Mapping[int, Cause]
) -> tuple[Wait, ...]:
    of_pods = waiting.of_pods(observed, pods, exit_codes)
    if not of_pods and state in (State.RUNNING, State.RESTARTING):
        # What groups say of one that runs may be of before; only that a lost pod cannot be made again is not.
        return tuple(waiting.refusals(observed, pods))
    of_job = waiting.of_job(observed, pods, exit_codes)
    if any(wait.whole for wait in of_job):
        # Of what their gang waits for they have not been told.
        of_pods = [wait for wait in of_pods if wait.reason]
    if any(wait.whole for wait in of_pods):
        # That others are missing may have been said before they were made; what lacks, lacks for all.
        of_pods = [wait for wait in of_pods if not wait.follows]
    asked = asks.of(observed.job.annotations) if observed.job is not None else asks.NOBODY
    placed = Counter(pod.role for pod in pods if pod.placed and pod.phase not in ("Succeeded", "Failed"))
    told = (
        structs.replace(wait, said=shortage.sentence(wait, asked, placed)) for wait in [*of_job, *of_pods]
    )
    return tuple(waiting.merged(told))


def _ended(
    observed: Observed, state: State, pods: tuple[Pod, ...], exit_codes: Mapping[int, Cause]
) -> JobStatus:
    job = observed.job
    by_type = _by_type(job) if job else {}
    condition = by_type.get(_WORDS.get(state, "")) if job else _remembered(observed)
    ended = (job.completed if job else None) or (condition.since if condition else None)
    certain, unsettled = blame.counting(_files(observed, state, pods, ended), pods)
    # Work that was done needs no explanation from pods that ended after it.
    if state is State.SUCCEEDED or (state in (State.GONE, State.DELETED) and observed.outputs):
        told = blame.of_files([*certain, *unsettled], pods, exit_codes)
    else:
        told = _told(observed, pods, condition, exit_codes)
        if _is_among(pods, job, condition) and not blame.has_cause(told, ended):
            told = _told(observed, tuple(map(_untold, pods)), condition, exit_codes)
    return JobStatus(
        state=state,
        job=job,
        pods=pods,
        total=job.replicas if job else len(pods),
        ready=sum(_is_ready(pod) for pod in pods),
        condition=condition,
        has_run=True,
        replaced=tuple(pod.replica for pod in pods if job is not None and _is_replacement(pod, job)),
        death=blame.with_early_exits(blame.first(told, ended), pods, job.replicas if job else len(pods)),
        dead=len({death.failure.replica for death in told}),
        unsettled=state is State.SUCCEEDED and bool(unsettled) and not certain,
        outputs=observed.outputs,
        looking=observed.looking,
    )


def _files(
    observed: Observed, state: State, pods: tuple[Pod, ...], ended: datetime | None
) -> Sequence[ErrorFile]:
    job = observed.job
    if state is not State.SUCCEEDED or job is None:
        return observed.error_files
    present = {name for pod in pods for name in (pod.name, pod.replica)}
    return [
        file
        for file in observed.error_files
        if file.worker in present or not blame.surely_well(file, job, ended)
    ]


def _told(
    observed: Observed, pods: tuple[Pod, ...], condition: Condition | None, exit_codes: Mapping[int, Cause]
) -> list[Death]:
    """All the deaths that may have ended the job."""
    job = observed.job
    ended = (job.completed if job else None) or (condition.since if condition else None)
    told_in_full = [_in_full(pod, observed.events) for pod in pods]
    ends = [
        each for each in deaths.of_pods(told_in_full, exit_codes) if not _is_cleaned(each, job, condition)
    ]
    ends += blame.of_events(observed.events, pods, ended, exit_codes)
    return _of_failure(observed, pods, ends, exit_codes)


def _is_among(pods: Sequence[Pod], job: Job | None, condition: Condition | None) -> bool:
    """Whether one of these must have ended the job, though all of them are ordered away after it."""
    if job is None or condition is None or job.clean_pod_policy != "All":
        return False
    by_limit = "deadline" in condition.message or "backoff limit" in condition.message
    return len(pods) >= job.replicas and not by_limit


def _untold(pod: Pod) -> Pod:
    """As one that nobody has told to end, if by its exit code nobody has: its clock may be ahead."""
    return structs.replace(pod, deleted=None) if deaths.ended_by_itself(pod) else pod


def _of_failure(
    observed: Observed, pods: tuple[Pod, ...], ends: Sequence[Death], exit_codes: Mapping[int, Cause]
) -> list[Death]:
    """The deaths that may have ended the job; those that a worker got over only when there is no other."""
    over = [each for each in observed.error_files if blame.is_over(each, pods)]
    since = [each for each in observed.error_files if each not in over]
    told = blame.told(ends, blame.of_files(since, pods, exit_codes))
    if not all(death.failure.stopped and death.ordered for death in told):
        return told
    failed = _by_type(observed.job).get("Failed") if observed.job else None
    said = failed.message if failed is not None else ""
    if "deadline" in said:
        return told
    restarts = deaths.of_restarts(pods, exit_codes) if "backoff limit" in said else []
    return blame.told(restarts, blame.of_files(blame.near(over, restarts), pods, exit_codes)) or told


def _in_full(pod: Pod, events: Sequence[Event]) -> Pod:
    """With the whole message, where somebody has cut it short on the pod and not in an event."""
    said = pod.message.strip()
    if not (pod.reason and said):
        return pod
    whole = [
        each.message for each in events if each.name == pod.name and each.warning and said in each.message
    ]
    return structs.replace(pod, message=whole[-1][whole[-1].index(said) :]) if whole else pod


def _remembered(observed: Observed) -> Condition | None:
    """The end of a job that is gone, as its operator told it."""
    for reason, kind in (("PyTorchJobSucceeded", "Succeeded"), ("PyTorchJobFailed", "Failed")):
        found = [event for event in observed.events if event.reason == reason]
        if found:
            last = max(found, key=lambda event: (event.at is not None, event.at, event.message))
            return Condition(type=kind, true=True, reason=reason, message=last.message, since=last.at)
    return None


def _is_cleaned(death: Death, job: Job | None, condition: Condition | None) -> bool:
    """Whether it is the operator who removes this replica, after the end that others have brought about."""
    if job is None or condition is None or not (death.failure.stopped and death.ordered):
        return False
    removes = job.clean_pod_policy not in ("", "None") or "backoff limit" in condition.message
    ended = job.completed or condition.since
    # Both times are whole seconds, and the operator takes less than one.
    return death.at is None or ended is None or death.at > ended or (removes and death.at >= ended)


def worst(status: JobStatus) -> Wait | None:
    """The wait to tell of: the earliest stage, and of that the one that worries."""
    return status.waits[0] if status.waits else None


def held(status: JobStatus) -> list[Wait]:
    """What keeps replicas from being placed."""
    return [wait for wait in status.waits if wait.stage <= Stage.UNPLACED]


def first_container(status: JobStatus) -> datetime | None:
    """When the first container that we know of began, which is when the job began to run."""
    began = [
        moment
        for pod in status.pods
        if (container := pod.primary) is not None
        for moment in (
            container.running_since,
            container.ended.started if container.ended else None,
            container.last.started if container.last else None,
        )
        if moment is not None
    ]
    condition = status.condition
    if condition is not None and condition.type == "Running" and condition.since is not None:
        began.append(condition.since)
    return min(began) if began else None
