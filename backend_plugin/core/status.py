"""Conversion of the observed state of a job to a `JobStatus`. `verdict_rules` derives the verdict from it."""

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import structs

from backend_plugin.core import (
    admission,
    job_conditions,
    job_warnings,
    pending_reasons,
    replica_pods,
    root_cause,
    shortage_message,
    terminations,
)
from backend_plugin.core.dialects import table
from backend_plugin.core.error_files import ErrorFile
from backend_plugin.core.observed import Condition, Event, Job, JobLimit, Observed, Pod
from backend_plugin.core.pending import JobWarning, PendingReason, PendingStage
from backend_plugin.core.scheduling import gang_annotation
from backend_plugin.core.terminations import ReplicaTermination
from kfpytorch_common.causes import Cause


class JobState(enum.Enum):
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
    def is_finished(self) -> bool:
        """True if the job has ended or is being deleted."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.DELETED, JobState.GONE)


class JobStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The status of a job at one moment."""

    state: JobState
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
    waits: tuple[PendingReason, ...] = ()
    notes: tuple[JobWarning, ...] = ()
    """The job warnings."""
    death: ReplicaTermination | None = None
    """The root cause, once the job has ended."""
    dead: int = 0
    """The number of replicas that failed."""
    unsettled: bool = False
    """True if it succeeded, but a restarted replica with an old error file has not ended."""
    outputs: bool | None = None
    looking: bool = False
    """True while its error files and outputs are being read."""


def compute_status(observed: Observed, exit_codes: Mapping[int, Cause]) -> JobStatus:
    """Return the status of a job, which depends only on the arguments and not on the time."""
    job = observed.job
    pods = replica_pods.list_replica_pods(observed)
    if job is None:
        return _build_final_status(observed, _compute_missing_job_state(observed), pods, exit_codes)
    by_type = _index_conditions(job)
    state = _compute_state(job, by_type, observed)
    if state.is_finished:
        return _build_final_status(observed, state, pods, exit_codes)
    return _build_active_status(observed, by_type, state, pods, exit_codes)


def _compute_missing_job_state(observed: Observed) -> JobState:
    """Return the state of a job that does not exist, from the operator's event about its end.

    Events outlive the job by an hour, and its time to live may be zero.
    """
    end = _find_final_condition(observed)
    if end is None:
        return JobState.GONE
    done = end.type == job_conditions.SUCCEEDED and observed.outputs is not False
    return (
        JobState.SUCCEEDED
        if done
        else JobState.FAILED
        if end.type == job_conditions.FAILED
        else JobState.GONE
    )


def _index_conditions(job: Job) -> Mapping[str, Condition]:
    return {condition.type: condition for condition in job.conditions}


def _compute_state(job: Job, by_type: Mapping[str, Condition], observed: Observed) -> JobState:
    true = {kind for kind, condition in by_type.items() if condition.true}
    # An elastic job may have both conditions if one replica succeeded and one failed. Outputs show a success.
    if job_conditions.SUCCEEDED in true and (job_conditions.FAILED not in true or observed.outputs):
        return JobState.SUCCEEDED
    for kind, state in _BY_CONDITION:
        if kind in true and (state is JobState.FAILED or not job.deleting):
            return state
    if job.deleting:
        return JobState.DELETED
    if not by_type and job.started is None:
        return JobState.UNSEEN
    return JobState.CREATED if job.started is None else JobState.ADMITTED


_BY_CONDITION = (
    (job_conditions.FAILED, JobState.FAILED),
    (
        job_conditions.SUSPENDED,
        JobState.SUSPENDED,
    ),  # The operator leaves Restarting as it is when it suspends.
    (job_conditions.RESTARTING, JobState.RESTARTING),
    (job_conditions.RUNNING, JobState.RUNNING),
)


def _build_active_status(
    observed: Observed,
    by_type: Mapping[str, Condition],
    state: JobState,
    pods: tuple[Pod, ...],
    exit_codes: Mapping[int, Cause],
) -> JobStatus:
    job = observed.job
    assert job is not None, "only called where there is one"  # noqa: S101 - for the type checker.
    has_run = bool(by_type.keys() & job_conditions.STARTS)
    suspended = job_conditions.SUSPENDED in by_type
    present = ready = 0
    yet_to_run = False
    replaced = []
    for pod in pods:
        present += pod.deleted is None
        ready += replica_pods.is_ready(pod)
        if replica_pods.is_replacement(pod, job):
            replaced.append(pod.replica)
        elif pod.phase in ("Pending", "") and not suspended and replica_pods.has_never_run(pod, job):
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
        admitted_once=suspended and not has_run and admission.is_first_admission(job, pods),
        has_been_held=replica_pods.has_been_held(observed, pods),
        missing=missing,
        replaced=tuple(replaced),
        enough=not yet_to_run or job.scales or missing or bool(replaced),
        waits=_list_pending_reasons(observed, pods, state, exit_codes),
        notes=job_warnings.list_warnings(observed, pods),
        outputs=observed.outputs,
    )


_WORDS = {
    JobState.CREATED: job_conditions.CREATED,
    JobState.ADMITTED: job_conditions.CREATED,
    JobState.SUSPENDED: job_conditions.SUSPENDED,
    JobState.RESTARTING: job_conditions.RESTARTING,
    JobState.RUNNING: job_conditions.RUNNING,
    JobState.SUCCEEDED: job_conditions.SUCCEEDED,
    JobState.FAILED: job_conditions.FAILED,
}


def _list_pending_reasons(
    observed: Observed, pods: tuple[Pod, ...], state: JobState, exit_codes: Mapping[int, Cause]
) -> tuple[PendingReason, ...]:
    of_pods = pending_reasons.list_replica_reasons(observed, pods, exit_codes)
    if not of_pods and state in (JobState.RUNNING, JobState.RESTARTING):
        # The status of a pod group may be outdated while the job runs. A failed pod creation still applies.
        return tuple(pending_reasons.list_creation_failures(observed, pods))
    of_job = pending_reasons.list_job_reasons(observed, pods, exit_codes)
    if any(wait.whole for wait in of_job):
        # The gang has a reason, so omit pods for which no reason is reported.
        of_pods = [wait for wait in of_pods if wait.reason]
    if any(wait.whole for wait in of_pods):
        # A message about missing members may precede their creation. A shortage applies to the whole gang.
        of_pods = [wait for wait in of_pods if not wait.follows]
    asked = (
        gang_annotation.read_gang_summary(observed.job.annotations)
        if observed.job is not None
        else gang_annotation.NOBODY
    )
    placed = Counter(pod.role for pod in pods if pod.is_bound and pod.phase not in ("Succeeded", "Failed"))
    dated = pending_reasons.with_report_times([*of_job, *of_pods], observed.events)
    told = (
        structs.replace(wait, said=shortage_message.format_sentence(wait, asked, placed)) for wait in dated
    )
    return tuple(pending_reasons.merge_reasons(told))


def _build_final_status(
    observed: Observed, state: JobState, pods: tuple[Pod, ...], exit_codes: Mapping[int, Cause]
) -> JobStatus:
    job = observed.job
    by_type = _index_conditions(job) if job else {}
    condition = by_type.get(_WORDS.get(state, "")) if job else _find_final_condition(observed)
    ended = (job.completed if job else None) or (condition.since if condition else None)
    certain, unsettled = root_cause.split_error_files(_select_error_files(observed, state, pods, ended), pods)
    # If the job has done its work, later terminations of pods do not matter.
    if state is JobState.SUCCEEDED or (state in (JobState.GONE, JobState.DELETED) and observed.outputs):
        told = root_cause.list_file_terminations([*certain, *unsettled], pods, exit_codes)
    else:
        told = _list_terminations(observed, pods, condition, exit_codes)
        if _has_ending_pod(pods, job, condition) and not root_cause.has_root_cause(told, ended):
            told = _list_terminations(
                observed, tuple(map(_without_deletion_time, pods)), condition, exit_codes
            )
    return JobStatus(
        state=state,
        job=job,
        pods=pods,
        total=job.replicas if job else len(pods),
        ready=sum(replica_pods.is_ready(pod) for pod in pods),
        condition=condition,
        has_run=True,
        replaced=tuple(
            pod.replica for pod in pods if job is not None and replica_pods.is_replacement(pod, job)
        ),
        death=root_cause.with_early_exits(
            root_cause.select_root_cause(told, ended), pods, job.replicas if job else len(pods)
        ),
        dead=len({death.failure.replica for death in told}),
        unsettled=state is JobState.SUCCEEDED and bool(unsettled) and not certain,
        outputs=observed.outputs,
        looking=observed.looking,
    )


def _select_error_files(
    observed: Observed, state: JobState, pods: tuple[Pod, ...], ended: datetime | None
) -> Sequence[ErrorFile]:
    job = observed.job
    if state is not JobState.SUCCEEDED or job is None:
        return observed.error_files
    present = {name for pod in pods for name in (pod.name, pod.replica)}
    return [
        file
        for file in observed.error_files
        if file.worker in present or not root_cause.is_recovery_implied(file, job, ended)
    ]


def _list_terminations(
    observed: Observed, pods: tuple[Pod, ...], condition: Condition | None, exit_codes: Mapping[int, Cause]
) -> list[ReplicaTermination]:
    """Return all terminations that may have ended the job."""
    job = observed.job
    ended = (job.completed if job else None) or (condition.since if condition else None)
    told_in_full = [_with_full_message(pod, observed.events) for pod in pods]
    ends = [
        each
        for each in terminations.list_pod_terminations(told_in_full, exit_codes)
        if not _is_cleanup_termination(each, job, condition)
    ]
    ends += root_cause.list_event_terminations(observed.events, pods, ended, exit_codes)
    return _list_failure_terminations(observed, pods, ends, exit_codes)


def _has_ending_pod(pods: Sequence[Pod], job: Job | None, condition: Condition | None) -> bool:
    """True if one of these pods must have ended the job, although the operator deletes all of them."""
    if job is None or condition is None or job.clean_pod_policy != "All":
        return False
    return len(pods) >= job.replicas and _find_limit(job, condition) is None


def _without_deletion_time(pod: Pod) -> Pod:
    """Return the pod without its deletion time if its exit code shows that it failed before.

    The end of the pod may appear to be later, because the clock of its Kubernetes node may be ahead.
    """
    return structs.replace(pod, deleted=None) if terminations.has_failed_by_itself(pod) else pod


def _list_failure_terminations(
    observed: Observed,
    pods: tuple[Pod, ...],
    ends: Sequence[ReplicaTermination],
    exit_codes: Mapping[int, Cause],
) -> list[ReplicaTermination]:
    """Return the terminations that may have ended the job.

    Failures before a restart of the worker count only if all others are stops, and the backoff limit ended
    the job.
    """
    over = [each for each in observed.error_files if root_cause.has_writer_restarted(each, pods)]
    since = [each for each in observed.error_files if each not in over]
    told = root_cause.merge_terminations(ends, root_cause.list_file_terminations(since, pods, exit_codes))
    if not all(death.failure.stopped and death.ordered for death in told):
        return told
    job = observed.job
    failed = _index_conditions(job).get(job_conditions.FAILED) if job else None
    limit = _find_limit(job, failed) if job and failed else None
    if limit is JobLimit.DEADLINE:
        return told
    restarts = terminations.list_restart_terminations(pods, exit_codes) if limit is JobLimit.BACKOFF else []
    return (
        root_cause.merge_terminations(
            restarts,
            root_cause.list_file_terminations(root_cause.select_near_files(over, restarts), pods, exit_codes),
        )
        or told
    )


def _with_full_message(pod: Pod, events: Sequence[Event]) -> Pod:
    """Return the pod with its full message from an event, if the message in its status is truncated."""
    said = pod.message.strip()
    if not (pod.reason and said):
        return pod
    whole = [
        each.message for each in events if each.name == pod.name and each.warning and said in each.message
    ]
    return structs.replace(pod, message=whole[-1][whole[-1].index(said) :]) if whole else pod


def _find_final_condition(observed: Observed) -> Condition | None:
    """Return the final condition of a job that does not exist, from the events of the operator."""
    for reason, kind in table.END_EVENTS.items():
        found = [event for event in observed.events if event.reason == reason]
        if found:
            last = max(found, key=lambda event: (event.at is not None, event.at, event.message))
            return Condition(type=kind, true=True, reason=reason, message=last.message, since=last.at)
    return None


def _is_cleanup_termination(death: ReplicaTermination, job: Job | None, condition: Condition | None) -> bool:
    """True if the operator deletes this replica after another termination has ended the job."""
    if job is None or condition is None or not (death.failure.stopped and death.ordered):
        return False
    by_limit = _find_limit(job, condition) is JobLimit.BACKOFF
    removes = job.clean_pod_policy not in ("", "None") or by_limit
    ended = job.completed or condition.since
    # Both times have a resolution of one second, and the operator takes less than one second.
    return death.at is None or ended is None or death.at > ended or (removes and death.at >= ended)


def _find_limit(job: Job, condition: Condition) -> JobLimit | None:
    """Return the limit that ended the job, from the condition about its end."""
    return table.get_dialect(job.dialect).find_limit(condition.message)


def find_first_reason(status: JobStatus) -> PendingReason | None:
    """Return the pending reason to report first, or None: the earliest stage, then problems first."""
    return status.waits[0] if status.waits else None


def list_unbound_reasons(status: JobStatus) -> list[PendingReason]:
    """Return the pending reasons of replicas that are not bound to a Kubernetes node."""
    return [wait for wait in status.waits if wait.stage <= PendingStage.UNPLACED]


def find_run_start(status: JobStatus) -> datetime | None:
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
    if condition is not None and condition.type == job_conditions.RUNNING and condition.since is not None:
        began.append(condition.since)
    return min(began) if began else None
