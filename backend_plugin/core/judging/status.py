"""Computes the `JobStatus` of a job from its observed state.

The module `verdict_rules` derives the Flyte phase of the job from this status.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import structs

from backend_plugin.core import job_conditions
from backend_plugin.core.dialects import table
from backend_plugin.core.judging import job_warnings, pending_reasons, replica_pods, shortage_message
from backend_plugin.core.judging.final_status import build_final_status
from backend_plugin.core.judging.job_status import JobState, JobStatus
from backend_plugin.core.judging.pending import PendingReason, PendingStage
from backend_plugin.core.judging.terminations import ExitCodes
from backend_plugin.core.observed import Condition, Job, Observed, Pod, find_last_event
from backend_plugin.core.scheduling import gang_annotation
from backend_plugin.core.scheduling.gang_annotation import GangSummary
from kfpytorch_common.causes import Cause


def compute_status(observed: Observed, exit_codes: ExitCodes) -> JobStatus:
    """Return the status of a job. The result does not depend on the current time."""
    job = observed.job
    if job is None:
        end = _find_final_condition(observed)
        return build_final_status(observed, _compute_missing_job_state(observed, end), end, exit_codes)
    by_type = {condition.type: condition for condition in job.conditions}
    state = _compute_state(job, by_type, observed)
    if state.is_finished:
        return build_final_status(observed, state, by_type.get(_CONDITIONS.get(state, "")), exit_codes)
    return _build_active_status(observed, job, state, by_type, exit_codes)


_CONDITIONS: Final[Mapping[JobState, str]] = {
    JobState.CREATED: job_conditions.CREATED,
    JobState.ADMITTED: job_conditions.CREATED,
    JobState.SUSPENDED: job_conditions.SUSPENDED,
    JobState.RESTARTING: job_conditions.RESTARTING,
    JobState.RUNNING: job_conditions.RUNNING,
    JobState.SUCCEEDED: job_conditions.SUCCEEDED,
    JobState.FAILED: job_conditions.FAILED,
}


def _find_final_condition(observed: Observed) -> Condition | None:
    """Return the final condition of a deleted job from its operator's events; None if none reports an end."""
    for reason, kind in table.END_EVENTS.items():
        last = find_last_event([event for event in observed.events if event.reason == reason])
        if last is not None:
            return Condition(type=kind, true=True, reason=reason, message=last.message, since=last.at)
    return None


def _compute_missing_job_state(observed: Observed, end: Condition | None) -> JobState:
    # A job whose time to live is zero is deleted at its end, but the event about its end remains.
    if end is None:
        return JobState.GONE
    if end.type == job_conditions.FAILED:
        return JobState.FAILED
    return JobState.GONE if observed.outputs is False else JobState.SUCCEEDED


def _compute_state(job: Job, by_type: Mapping[str, Condition], observed: Observed) -> JobState:
    true = {kind for kind, condition in by_type.items() if condition.true}
    # An elastic job may have both conditions if one replica succeeded and one failed. Outputs show a success.
    if job_conditions.SUCCEEDED in true and (job_conditions.FAILED not in true or observed.outputs):
        return JobState.SUCCEEDED
    if job_conditions.FAILED in true:
        return JobState.FAILED
    if job.deleting:
        return JobState.DELETED
    for kind, state in _BY_CONDITION:
        if kind in true:
            return state
    if job.started is not None:
        return JobState.ADMITTED
    return JobState.CREATED if by_type else JobState.UNSEEN


_BY_CONDITION: Final = (
    # The operator does not reset the condition Restarting when it suspends a job.
    (job_conditions.SUSPENDED, JobState.SUSPENDED),
    (job_conditions.RESTARTING, JobState.RESTARTING),
    (job_conditions.RUNNING, JobState.RUNNING),
)


def _build_active_status(
    observed: Observed, job: Job, state: JobState, by_type: Mapping[str, Condition], exit_codes: ExitCodes
) -> JobStatus:
    pods = replica_pods.list_replica_pods(observed)
    total, gang = job.replicas, gang_annotation.read_gang_summary(job.annotations)
    has_run = not job_conditions.STARTS.isdisjoint(by_type)
    suspended = job_conditions.SUSPENDED in by_type
    ready, replaced = replica_pods.count_ready(pods), replica_pods.list_replaced(pods, job)
    missing = job.started is not None and len([pod for pod in pods if pod.deleted is None]) < total
    needs_all = job.started is not None and not (suspended or job.scales or missing or replaced)
    return JobStatus(
        state=state,
        job=job,
        pods=pods,
        initializers=observed.initializers,
        total=total,
        ready=ready,
        condition=by_type.get(_CONDITIONS.get(state, "")),
        has_run=has_run,
        has_been_suspended=suspended,
        admitted_once=suspended and not has_run and replica_pods.is_first_admission(job, pods),
        has_been_held=replica_pods.has_been_held(observed, pods),
        missing=missing,
        replaced=replaced,
        enough=ready == len(pods) or not (needs_all and any(map(replica_pods.has_never_run, pods))),
        waits=_list_pending_reasons(observed, pods, state, exit_codes, gang),
        notes=job_warnings.list_warnings(observed, job, pods, gang),
        outputs=observed.outputs,
    )


def _list_pending_reasons(
    observed: Observed, pods: tuple[Pod, ...], state: JobState, exit_codes: ExitCodes, gang: GangSummary
) -> tuple[PendingReason, ...]:
    of_pods = pending_reasons.list_replica_reasons(observed, pods, exit_codes)
    if not of_pods and state in (JobState.RUNNING, JobState.RESTARTING):
        # The status of a pod group may be outdated while the job runs. A failed pod creation still applies.
        return tuple(pending_reasons.list_creation_failures(observed, pods))
    if any(pod.phase != "Succeeded" for pod in observed.initializers):
        # No replica exists yet, so ignore the pod group.
        of_data = _iter_initializer_reasons(observed.initializers, exit_codes)
        failures = pending_reasons.list_creation_failures(observed, pods)
        return tuple(pending_reasons.merge_reasons([*failures, *of_data]))
    of_job = pending_reasons.list_job_reasons(observed, pods, exit_codes, gang)
    if any(wait.of_gang for wait in of_job):
        # The gang has a reason, so omit pods for which no reason is reported.
        of_pods = [wait for wait in of_pods if wait.reason]
    if any(wait.of_gang for wait in of_pods):
        # Omit messages about missing members: they may be outdated, and a shortage applies to the whole gang.
        of_pods = [wait for wait in of_pods if not wait.follows]
    dated = pending_reasons.with_report_times([*of_job, *of_pods], observed.events)
    placed = Counter(pod.role for pod in pods if pod.is_bound and pod.phase not in ("Succeeded", "Failed"))
    described = [
        structs.replace(wait, text=shortage_message.format_sentence(wait, gang, placed)) for wait in dated
    ]
    return tuple(pending_reasons.merge_reasons(described))


def _iter_initializer_reasons(pods: Iterable[Pod], exit_codes: ExitCodes) -> Iterator[PendingReason]:
    """Yield a pending reason for each initializer that has not ended: the replicas wait for its end."""
    for pod in pods:
        if (wait := pending_reasons.find_pod_reason(pod, exit_codes)) is not None:
            yield wait
        elif pod.phase == "Running":
            # Without `since`, so that no timeout applies: a download may take longer than the start of a pod.
            yield PendingReason(
                stage=PendingStage.STARTING,
                cause=Cause.SYSTEM_ERROR,
                reason="Initializing",
                text=f"the {pod.role.removesuffix('-initializer')} is being loaded",
                replicas=(pod.replica,),
            )
