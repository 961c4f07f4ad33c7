"""The status of a job that has ended or does not exist, with the root cause of its end."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import structs

from backend_plugin.core.dialects import table
from backend_plugin.core.error_files import ErrorFile
from backend_plugin.core.judging import (
    event_terminations,
    file_terminations,
    replica_pods,
    root_cause,
    terminations,
)
from backend_plugin.core.judging.job_status import JobState, JobStatus
from backend_plugin.core.judging.terminations import ExitCodes, ReplicaTermination
from backend_plugin.core.observed import Condition, Job, JobLimit, Observed, Pod, get_end_time


def build_final_status(
    observed: Observed, state: JobState, condition: Condition | None, exit_codes: ExitCodes
) -> JobStatus:
    """Return the status of a finished job, with the root cause of its end.

    `JobState.is_finished` must be true for `state`. `condition` is the one that reports the end of the job;
    None if it is unknown.
    """
    job, pods = observed.job, replica_pods.list_replica_pods(observed)
    observed = structs.replace(observed, pods=pods)
    total, ended = job.replicas if job else len(pods), get_end_time(job, condition)
    is_unsettled = False
    # If the job has done its work, later terminations of pods do not matter.
    if state is JobState.SUCCEEDED or (observed.outputs and state is not JobState.FAILED):
        files = _select_error_files(observed, state, ended)
        certain, unsettled = file_terminations.split_error_files(files, pods)
        is_unsettled = state is JobState.SUCCEEDED and bool(unsettled) and not certain
        ends = file_terminations.list_file_terminations([*certain, *unsettled], observed, exit_codes)
    else:
        ends = _list_terminations(observed, condition, exit_codes)
    return JobStatus(
        state=state,
        job=job,
        pods=pods,
        total=total,
        ready=replica_pods.count_ready(pods),
        condition=condition,
        has_run=True,
        replaced=replica_pods.list_replaced(pods, job) if job else (),
        root_cause=root_cause.with_early_exits(root_cause.select_root_cause(ends, ended), pods, total),
        terminated=len({termination.failure.replica for termination in ends}),
        unsettled=is_unsettled,
        outputs=observed.outputs,
        reading_outputs=observed.reading_outputs,
    )


def _select_error_files(observed: Observed, state: JobState, ended: datetime | None) -> Sequence[ErrorFile]:
    job = observed.job
    if state is not JobState.SUCCEEDED or job is None:
        return observed.error_files
    return [
        file
        for file in observed.error_files
        if file_terminations.list_writers(file, observed.pods)
        or not file_terminations.is_recovery_implied(file, job, ended)
    ]


def _list_terminations(
    observed: Observed, condition: Condition | None, exit_codes: ExitCodes
) -> list[ReplicaTermination]:
    """Return the terminations of all replicas that may have ended the job.

    If no termination can be the root cause, search again without the deletion times of failed pods: the clock
    of a node may be ahead, so that a pod appears to have failed after its deletion.
    """
    pods, ended = observed.pods, get_end_time(observed.job, condition)
    ends = _list_known_terminations(observed, condition, exit_codes)
    if not _has_ending_pod(observed, condition) or root_cause.has_root_cause(ends, ended):
        return ends
    undeleted = tuple(
        structs.replace(pod, deleted=None) if terminations.has_failed_by_itself(pod) else pod for pod in pods
    )
    return _list_known_terminations(structs.replace(observed, pods=undeleted), condition, exit_codes)


def _has_ending_pod(observed: Observed, condition: Condition | None) -> bool:
    """True if it is certain that the failure of one of the observed pods has ended the job.

    This is so if the operator deletes all pods of an ended job (clean pod policy ``All``), every
    replica has a pod, and no limit, such as a deadline, ended the job. `condition` is the one that reports
    the end of the job.
    """
    job = observed.job
    if job is None or condition is None or job.clean_pod_policy != "All":
        return False
    return len(observed.pods) >= job.replicas and _find_limit(job, condition) is None


def _list_known_terminations(
    observed: Observed, condition: Condition | None, exit_codes: ExitCodes
) -> list[ReplicaTermination]:
    """Return the terminations in pods, events and error files that may have ended the job.

    If all these replicas were only stopped, and no deadline ended the job, return earlier failures instead
    if there are any: those after which replicas were restarted. Error files report such failures. If the
    backoff limit ended the job, the previous runs of containers report them, too.
    """
    pods, files = observed.pods, observed.error_files
    earlier = [each for each in files if file_terminations.has_writer_restarted(each, pods)]
    current = [each for each in files if each not in earlier]
    merged = root_cause.merge_terminations(
        _list_reported_ends(observed, condition, exit_codes),
        file_terminations.list_file_terminations(current, observed, exit_codes),
    )
    limit = _find_limit(observed.job, condition)
    if limit is JobLimit.DEADLINE or not all(map(_is_stopped, merged)):
        return merged
    restarts = _list_restarts(pods, limit, exit_codes)
    near = root_cause.select_near_files(earlier, restarts)
    of_files = file_terminations.list_file_terminations(near, observed, exit_codes)
    return root_cause.merge_terminations(restarts, of_files) or merged


def _list_restarts(
    pods: Sequence[Pod], limit: JobLimit | None, exit_codes: ExitCodes
) -> list[ReplicaTermination]:
    return terminations.list_restart_terminations(pods, exit_codes) if limit is JobLimit.BACKOFF else []


def _list_reported_ends(
    observed: Observed, condition: Condition | None, exit_codes: ExitCodes
) -> list[ReplicaTermination]:
    """Return the terminations that pods and events report, without those that the end of the job caused."""
    job, ended = observed.job, get_end_time(observed.job, condition)
    of_pods = [terminations.find_pod_termination(pod, exit_codes) for pod in observed.pods]
    return [
        *(each for each in of_pods if each is not None and not _is_cleanup(each, job, condition)),
        *event_terminations.list_event_terminations(observed, ended, exit_codes),
    ]


def _is_cleanup(termination: ReplicaTermination, job: Job | None, condition: Condition | None) -> bool:
    """True if the operator stopped the terminated replica only because the job had already ended."""
    if job is None or condition is None or not _is_stopped(termination):
        return False
    return _can_be_after_end(termination.at, job, condition)


def _can_be_after_end(at: datetime | None, job: Job, condition: Condition) -> bool:
    ended = get_end_time(job, condition)
    if at is None or ended is None or at > ended:
        return True
    removes_pods = job.clean_pod_policy not in ("", "None") or _find_limit(job, condition) is JobLimit.BACKOFF
    # Both times have a resolution of one second, and the operator takes less than one second.
    return at == ended and removes_pods


def _is_stopped(termination: ReplicaTermination) -> bool:
    return termination.failure.stopped and termination.ordered


def _find_limit(job: Job | None, condition: Condition | None) -> JobLimit | None:
    if job is None or condition is None:
        return None
    return table.get_dialect(job.dialect).find_limit(condition.message)
