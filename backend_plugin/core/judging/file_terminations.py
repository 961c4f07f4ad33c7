"""Converts error files, the ``error*.pb`` that workers write, to terminations of replicas."""

import enum
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from backend_plugin.core.error_files import ErrorFile
from backend_plugin.core.judging import error_parser
from backend_plugin.core.judging.terminations import ExitCodes, ReplicaTermination, can_follow_deletion
from backend_plugin.core.observed import ContainerTermination, Job, Observed, Pod
from kfpytorch_common.causes import Cause, Failure, classify, is_consequence


def list_file_terminations(
    files: Sequence[ErrorFile], observed: Observed, exit_codes: ExitCodes
) -> list[ReplicaTermination]:
    """Return the terminations that these error files of workers report."""
    pods, launcher = observed.pods, observed.has_launcher
    deletion_times = {name: pod.deleted for pod in pods if pod.deleted for name in (pod.replica, pod.name)}
    replicas = {pod.name: pod.replica for pod in pods}
    return [
        _build_file_termination(
            file,
            # The name of a pod of an MPI job does not contain the index of its node, and the pod may be gone.
            replicas.get(file.worker) or error_parser.parse_replica_name(file.worker, launcher=launcher),
            deletion_times.get(file.worker),
            exit_codes,
        )
        for file in files
    ]


def _build_file_termination(
    file: ErrorFile, replica: str, deleted: datetime | None, exit_codes: ExitCodes
) -> ReplicaTermination:
    failure, reported = error_parser.parse_error_file(file)
    failure = replace(failure, replica=replica or failure.replica)
    cause = _classify_reported_exit(file, failure, exit_codes) or reported or _classify_message(failure)
    return ReplicaTermination(
        failure=failure,
        cause=cause,
        summary=error_parser.format_headline(file, failure),
        detail=failure.traceback,
        pod=file.worker,
        at=file.at,
        ordered=can_follow_deletion(file.at, deleted),
        explained=not failure.exception and cause is not Cause.USER_ERROR,
    )


def _classify_reported_exit(file: ErrorFile, failure: Failure, exit_codes: ExitCodes) -> Cause | None:
    """Return the cause of an error in Flyte's code, or the cause that `exit_codes` has for the exit code."""
    if file.system:
        # A non-recoverable error of Flyte's code in the container is an input that cannot be converted.
        return Cause.SYSTEM_ERROR if file.recoverable else Cause.INVALID_CONFIG
    # Without an exception, the elastic agent has reported a process that ended without an error message. A
    # shell reports 128 + n for a process that signal n has ended.
    code = failure.exit_code if failure.exit_code >= 0 else 128 - failure.exit_code
    return None if failure.exception else exit_codes.get(code)


def _classify_message(failure: Failure) -> Cause:
    cause = classify(failure)
    if cause is Cause.USER_ERROR and is_consequence(failure):
        return Cause.SYSTEM_ERROR  # The worker only lost a peer, and the end of the peer is unknown.
    return cause


class _WriterState(enum.IntEnum):
    """The present state of the worker that wrote an error file.

    If several workers may have written the file, the highest of their states counts.
    """

    RECOVERED = 0
    """The worker was restarted and succeeded."""
    RESTARTED = 1
    """The worker was restarted and has not ended."""
    FAILED = 2


def split_error_files(
    files: Sequence[ErrorFile], pods: Sequence[Pod]
) -> tuple[list[ErrorFile], list[ErrorFile]]:
    """Return two lists of error files: of failed workers, and of restarted workers that have not ended.

    The error file of a worker that succeeded after a restart is in neither list.
    """
    by_state: dict[_WriterState, list[ErrorFile]] = {state: [] for state in _WriterState}
    for file in files:
        states = [_get_writer_state(file, pod) for pod in list_writers(file, pods)]
        by_state[max(states, default=_WriterState.FAILED)].append(file)
    return by_state[_WriterState.FAILED], by_state[_WriterState.RESTARTED]


def list_writers(file: ErrorFile, pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods that may have written a file: all pods if the file does not name its worker."""
    return [pod for pod in pods if file.worker in ("", pod.name, pod.replica)]


def has_writer_restarted(file: ErrorFile, pods: Sequence[Pod]) -> bool:
    """True if the worker of the error file has been started again after it wrote the file."""
    return file.at is not None and any(_has_restarted_since(file, pod) for pod in list_writers(file, pods))


def is_recovery_implied(file: ErrorFile, job: Job, ended: datetime | None) -> bool:
    """True if the success of the job implies that the worker that wrote `file`, and has no pod, recovered.

    Three conditions are necessary. The restart policy permits restarts. `file` is more than five seconds
    older than `ended`, the end of the job. The job cannot succeed unless this worker does, or the clean pod
    policy of the job deletes all pods.
    """
    if ended is None or file.at is None or ended - file.at <= _ANEW:
        return False
    role = error_parser.parse_replica_name(file.worker).partition("-")[0]
    restarts = {group.role: group.restarts for group in job.groups}
    return restarts.get(role, False) and _implies_success(job, role)


def _implies_success(job: Job, role: str) -> bool:
    # All nodes of a job without roles must succeed, also if it is elastic.
    is_decided_by_master = job.elastic or any(group.role == "master" for group in job.groups)
    return job.clean_pod_policy == "All" or role in ("master", "node") or not is_decided_by_master


# The shortest time in which a container is restarted and completes any work.
_ANEW: Final = timedelta(seconds=5)
# The kubelet reports times in whole seconds, a worker in nanoseconds.
POD_TIME_RESOLUTION: Final = timedelta(seconds=1)


def _get_writer_state(file: ErrorFile, pod: Pod) -> _WriterState:
    ended = pod.termination
    if not _has_restarted_since(file, pod):
        return _WriterState.FAILED
    if pod.deleted is None and ended is None and pod.phase in ("Pending", "Running"):
        return _WriterState.RESTARTED
    return _WriterState.RECOVERED if _has_completed_work(pod, ended) else _WriterState.FAILED


def _has_completed_work(pod: Pod, ended: ContainerTermination | None) -> bool:
    if pod.deleted is not None:
        # A worker that exits with 0 because its pod is deleted has not completed its work.
        return pod.phase == "Succeeded" and has_ended_by(ended, pod.deleted)
    return pod.phase == "Succeeded" or (ended is not None and ended.exit_code == 0)


def has_ended_by(ended: ContainerTermination | None, at: datetime) -> bool:
    """True if the container had ended by time `at`."""
    return ended is not None and ended.finished is not None and ended.finished <= at


def _has_restarted_since(file: ErrorFile, pod: Pod) -> bool:
    """True if the pod, or its current container run, started after the worker wrote `file`."""
    began, again = pod.run_start or pod.started or pod.created, _has_previous_run(pod)
    if began is None or file.at is None:
        return again
    return began - file.at > (-POD_TIME_RESOLUTION if again else timedelta(0))


def _has_previous_run(pod: Pod) -> bool:
    container = pod.primary
    return container is not None and (container.restarts > 0 or container.last is not None)
