"""Conversion of the observed state of a job to a `JobStatus`. `judgement` derives the verdict from it."""

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import structs

from backend_plugin.core import admission, blame, deaths, notes, shortage, waiting
from backend_plugin.core.deaths import Death
from backend_plugin.core.error_files import ErrorFile
from backend_plugin.core.observed import Condition, Event, Job, Observed, Pod, is_replica
from backend_plugin.core.scheduling import asks
from backend_plugin.core.waits import Note, Stage, Wait
from kfpytorch_common.causes import Cause


class State(enum.Enum):
    """The state of a job, from its conditions, or from other observed state if it does not have any."""

    UNSEEN = "unseen"
    """The operator has not written a condition."""
    CREATED = "created"
    """The operator has not created all pods."""
    SUSPENDED = "suspended"
    ADMITTED = "admitted"
    """The operator has created all pods."""
    RUNNING = "running"
    RESTARTING = "restarting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DELETED = "deleted"
    """The job is being deleted before its end."""
    GONE = "gone"
    """The job does not exist (any more): deleted by a client, or after its time to live."""

    @property
    def is_over(self) -> bool:
        """True if the job has ended or is being deleted."""
        return self in (State.SUCCEEDED, State.FAILED, State.DELETED, State.GONE)


class JobStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The status of a job at one moment."""

    state: State
    job: Job | None
    pods: tuple[Pod, ...] = ()
    """The pods of its replicas: the master first, then by index."""
    total: int = 0
    ready: int = 0
    condition: Condition | None = None
    """The condition that corresponds to its state."""
    has_run: bool = False
    """True if the operator has reported that it runs, now or before."""
    has_been_suspended: bool = False
    admitted_once: bool = False
    """True if a queue has admitted it exactly once, and every pod is of the set created then."""
    has_been_held: bool = False
    """True if a scheduler, a queue or the API server has reported why it waits."""
    missing: bool = False
    """True if replicas do not exist after the operator has created all of them."""
    replaced: tuple[str, ...] = ()
    """The replicas with a pod that was created after the first full set."""
    enough: bool = True
    """True unless a pod of the first full set, which the training requires, has never run."""
    waits: tuple[Wait, ...] = ()
    notes: tuple[Note, ...] = ()
    """The job warnings."""
    death: Death | None = None
    """The root cause, once the job has ended."""
    dead: int = 0
    """The number of replicas that failed."""
    unsettled: bool = False
    """True if it succeeded, but a restarted replica with an old error file has not ended."""
    outputs: bool | None = None
    looking: bool = False
    """True while its error files and outputs are being read."""


def read(observed: Observed, exit_codes: Mapping[int, Cause]) -> JobStatus:
    """Return the status of a job, which depends only on the arguments and not on the time."""
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
    """Return the state of a job that does not exist, from the operator's event about its end.

    Events outlive the job by an hour, and its time to live may be zero.
    """
    end = _remembered(observed)
    if end is None:
        return State.GONE
    done = end.type == "Succeeded" and observed.outputs is not False
    return State.SUCCEEDED if done else State.FAILED if end.type == "Failed" else State.GONE


def _by_type(job: Job) -> Mapping[str, Condition]:
    return {condition.type: condition for condition in job.conditions}


def _own(observed: Observed) -> tuple[Pod, ...]:
    """Return the pods of the job's replicas in order, without unrelated and placeholder pods."""
    job = observed.job
    own = [pod for pod in observed.pods if pod.role and (job is None or is_replica(pod, job))]
    return tuple(sorted(own, key=lambda pod: (pod.role, pod.index, pod.name)))


def _state(job: Job, by_type: Mapping[str, Condition], observed: Observed) -> State:
    true = {kind for kind, condition in by_type.items() if condition.true}
    # An elastic job may have both conditions if one replica succeeded and one failed. Outputs show a success.
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
        admitted_once=suspended and not has_run and admission.is_first(job, pods),
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
    """True if the pod was created after the first full set, to replace a failed or deleted pod."""
    return job.started is not None and pod.created is not None and pod.created > job.started


def _is_first(pod: Pod, job: Job) -> bool:
    """True if the pod is of the first set and has never run; False if a missing time leaves that open."""
    if pod.deleted is not None or pod.created is None or job.started is None:
        return False
    return not any(container.ever_started for container in pod.containers)


def _has_been_held(observed: Observed, pods: tuple[Pod, ...]) -> bool:
    return (
        any(group.phase or group.conditions for group in observed.pod_groups)
        # A placeholder is placed before its replica.
        or any(pod.scheduled is not None for pod in pods)
        or any(pod.scheduled is not None for pod in observed.pods if pod.place)
        or any(event.warning and event.reason.startswith("FailedCreate") for event in observed.events)
    )


def _waits(
    observed: Observed, pods: tuple[Pod, ...], state: State, exit_codes: Mapping[int, Cause]
) -> tuple[Wait, ...]:
    of_pods = waiting.of_pods(observed, pods, exit_codes)
    if not of_pods and state in (State.RUNNING, State.RESTARTING):
        # The status of a pod group may be outdated while the job runs. A failed pod creation still applies.
        return tuple(waiting.refusals(observed, pods))
    of_job = waiting.of_job(observed, pods, exit_codes)
    if any(wait.whole for wait in of_job):
        # The gang has a reason, so omit pods for which no reason is reported.
        of_pods = [wait for wait in of_pods if wait.reason]
    if any(wait.whole for wait in of_pods):
        # A message about missing members may precede their creation. A shortage applies to the whole gang.
        of_pods = [wait for wait in of_pods if not wait.follows]
    asked = asks.of(observed.job.annotations) if observed.job is not None else asks.NOBODY
    placed = Counter(pod.role for pod in pods if pod.placed and pod.phase not in ("Succeeded", "Failed"))
    dated = waiting.with_report_times([*of_job, *of_pods], observed.events)
    told = (structs.replace(wait, said=shortage.sentence(wait, asked, placed)) for wait in dated)
    return tuple(waiting.merged(told))


def _ended(
    observed: Observed, state: State, pods: tuple[Pod, ...], exit_codes: Mapping[int, Cause]
) -> JobStatus:
    job = observed.job
    by_type = _by_type(job) if job else {}
    condition = by_type.get(_WORDS.get(state, "")) if job else _remembered(observed)
    ended = (job.completed if job else None) or (condition.since if condition else None)
    certain, unsettled = blame.counting(_files(observed, state, pods, ended), pods)
    # If the job has done its work, later terminations of pods do not matter.
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
    """Return all terminations that may have ended the job."""
    job = observed.job
    ended = (job.completed if job else None) or (condition.since if condition else None)
    told_in_full = [_in_full(pod, observed.events) for pod in pods]
    ends = [
        each for each in deaths.of_pods(told_in_full, exit_codes) if not _is_cleaned(each, job, condition)
    ]
    ends += blame.of_events(observed.events, pods, ended, exit_codes)
    return _of_failure(observed, pods, ends, exit_codes)


def _is_among(pods: Sequence[Pod], job: Job | None, condition: Condition | None) -> bool:
    """True if one of these pods must have ended the job, although the operator deletes all of them."""
    if job is None or condition is None or job.clean_pod_policy != "All":
        return False
    by_limit = "deadline" in condition.message or "backoff limit" in condition.message
    return len(pods) >= job.replicas and not by_limit


def _untold(pod: Pod) -> Pod:
    """Return the pod without its deletion time if its exit code shows that it failed before.

    The end of the pod may appear to be later, because the clock of its Kubernetes node may be ahead.
    """
    return structs.replace(pod, deleted=None) if deaths.ended_by_itself(pod) else pod


def _of_failure(
    observed: Observed, pods: tuple[Pod, ...], ends: Sequence[Death], exit_codes: Mapping[int, Cause]
) -> list[Death]:
    """Return the terminations that may have ended the job.

    Failures before a restart of the worker count only if all others are stops, and the backoff limit ended
    the job.
    """
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
    """Return the pod with its full message from an event, if the message in its status is truncated."""
    said = pod.message.strip()
    if not (pod.reason and said):
        return pod
    whole = [
        each.message for each in events if each.name == pod.name and each.warning and said in each.message
    ]
    return structs.replace(pod, message=whole[-1][whole[-1].index(said) :]) if whole else pod


def _remembered(observed: Observed) -> Condition | None:
    """Return the final condition of a job that does not exist, from the events of the operator."""
    for reason, kind in (("PyTorchJobSucceeded", "Succeeded"), ("PyTorchJobFailed", "Failed")):
        found = [event for event in observed.events if event.reason == reason]
        if found:
            last = max(found, key=lambda event: (event.at is not None, event.at, event.message))
            return Condition(type=kind, true=True, reason=reason, message=last.message, since=last.at)
    return None


def _is_cleaned(death: Death, job: Job | None, condition: Condition | None) -> bool:
    """True if the operator deletes this replica after another termination has ended the job."""
    if job is None or condition is None or not (death.failure.stopped and death.ordered):
        return False
    removes = job.clean_pod_policy not in ("", "None") or "backoff limit" in condition.message
    ended = job.completed or condition.since
    # Both times have a resolution of one second, and the operator takes less than one second.
    return death.at is None or ended is None or death.at > ended or (removes and death.at >= ended)


def worst(status: JobStatus) -> Wait | None:
    """Return the pending reason to report first, or None: the earliest stage, then problems first."""
    return status.waits[0] if status.waits else None


def held(status: JobStatus) -> list[Wait]:
    """Return the pending reasons of replicas that are not bound to a Kubernetes node."""
    return [wait for wait in status.waits if wait.stage <= Stage.UNPLACED]


def first_container(status: JobStatus) -> datetime | None:
    """Return the time at which the job began to run: the earliest known start of a container."""
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
