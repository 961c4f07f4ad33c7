"""Conversion of the observed state of a job to a `JobStatus`. `verdict_rules` derives the verdict from it."""

from collections import Counter
from collections.abc import Mapping

from msgspec import structs

from backend_plugin.core import (
    admission,
    initializers,
    job_conditions,
    job_warnings,
    pending_reasons,
    replica_pods,
    shortage_message,
)
from backend_plugin.core.final_status import (
    CONDITIONS,
    build_final_status,
    find_final_condition,
    index_conditions,
)
from backend_plugin.core.job_status import JobState, JobStatus
from backend_plugin.core.observed import Condition, Job, Observed, Pod
from backend_plugin.core.pending import PendingReason
from backend_plugin.core.scheduling import gang_annotation
from kfpytorch_common.causes import Cause


def compute_status(observed: Observed, exit_codes: Mapping[int, Cause]) -> JobStatus:
    """Return the status of a job, which depends only on the arguments and not on the time."""
    job = observed.job
    pods = replica_pods.list_replica_pods(observed)
    if job is None:
        return build_final_status(observed, _compute_missing_job_state(observed), pods, exit_codes)
    by_type = index_conditions(job)
    state = _compute_state(job, by_type, observed)
    if state.is_finished:
        return build_final_status(observed, state, pods, exit_codes)
    return _build_active_status(observed, by_type, state, pods, exit_codes)


def _compute_missing_job_state(observed: Observed) -> JobState:
    """Return the state of a job that does not exist, from the operator's event about its end.

    Events outlive the job by an hour, and its time to live may be zero.
    """
    end = find_final_condition(observed)
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
        initializers=observed.initializers,
        total=job.replicas,
        ready=ready,
        condition=by_type.get(CONDITIONS.get(state, "")),
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


def _list_pending_reasons(
    observed: Observed, pods: tuple[Pod, ...], state: JobState, exit_codes: Mapping[int, Cause]
) -> tuple[PendingReason, ...]:
    of_pods = pending_reasons.list_replica_reasons(observed, pods, exit_codes)
    if not of_pods and state in (JobState.RUNNING, JobState.RESTARTING):
        # The status of a pod group may be outdated while the job runs. A failed pod creation still applies.
        return tuple(pending_reasons.list_creation_failures(observed, pods))
    if not initializers.are_complete(observed.initializers):
        # No replica exists yet, so the pod group can report nothing else.
        of_data = initializers.list_reasons(observed.initializers, exit_codes)
        failures = pending_reasons.list_creation_failures(observed, pods)
        return tuple(pending_reasons.merge_reasons([*failures, *of_data]))
    of_job = pending_reasons.list_job_reasons(observed, pods, exit_codes)
    if any(wait.of_gang for wait in of_job):
        # The gang has a reason, so omit pods for which no reason is reported.
        of_pods = [wait for wait in of_pods if wait.reason]
    if any(wait.of_gang for wait in of_pods):
        # A message about missing members may precede their creation. A shortage applies to the whole gang.
        of_pods = [wait for wait in of_pods if not wait.follows]
    gang = (
        gang_annotation.read_gang_summary(observed.job.annotations)
        if observed.job is not None
        else gang_annotation.NOBODY
    )
    placed = Counter(pod.role for pod in pods if pod.is_bound and pod.phase not in ("Succeeded", "Failed"))
    dated = pending_reasons.with_report_times([*of_job, *of_pods], observed.events)
    formatted = (
        structs.replace(wait, text=shortage_message.format_sentence(wait, gang, placed)) for wait in dated
    )
    return tuple(pending_reasons.merge_reasons(formatted))
