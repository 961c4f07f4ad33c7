"""Terminations that error files report, and the state of the workers that wrote them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from backend_plugin.core import error_parser
from backend_plugin.core.error_files import ErrorFile
from backend_plugin.core.observed import Container, ContainerTermination, Job, Pod
from backend_plugin.core.terminations import ReplicaTermination
from kfpytorch_common.causes import Cause, Failure, classify, is_consequence


def list_file_terminations(
    files: Sequence[ErrorFile],
    pods: Sequence[Pod],
    exit_codes: Mapping[int, Cause],
    *,
    launcher: bool = False,
) -> list[ReplicaTermination]:
    """Return the terminations that the error files of workers report; `launcher` is `Job.launcher`."""
    if not files:
        return []
    deletion_times = {name: pod.deleted for pod in pods if pod.deleted for name in (pod.replica, pod.name)}
    replicas = _map_replicas(files, pods, launcher=launcher)
    keys = ((each, replicas.get(each.worker), deletion_times.get(each.worker)) for each in files)
    return [_build_file_termination(*each, exit_codes) for each in keys]


def _map_replicas(files: Sequence[ErrorFile], pods: Sequence[Pod], *, launcher: bool) -> dict[str, str]:
    """Return the names of the replicas by the names of their pods."""
    replicas = {pod.name: pod.replica for pod in pods}
    if not launcher:
        return replicas
    # The pods may be gone.
    names = {file.worker: error_parser.parse_replica_name(file.worker, launcher=True) for file in files}
    return {**names, **replicas}


def _build_file_termination(
    file: ErrorFile, replica: str | None, deleted: datetime | None, exit_codes: Mapping[int, Cause]
) -> ReplicaTermination:
    failure = error_parser.parse_failure(file)
    # The name of a pod of an MPI job does not contain the index of its node.
    failure = replace(failure, replica=replica or failure.replica)
    cause = _classify_error_file(file, failure, exit_codes)
    return ReplicaTermination(
        failure=failure,
        cause=cause,
        summary=error_parser.format_headline(file, failure),
        detail=failure.traceback,
        recoverable=file.recoverable,
        pod=file.worker,
        at=file.at,
        ordered=deleted is not None and (file.at is None or file.at >= deleted),
        explained=not failure.exception and cause is not Cause.USER_ERROR,
    )


def _classify_error_file(file: ErrorFile, failure: Failure, exit_codes: Mapping[int, Cause]) -> Cause:
    if file.system:
        # A non-recoverable error of Flyte's code in the container is an input that cannot be converted.
        return Cause.SYSTEM_ERROR if file.recoverable else Cause.INVALID_CONFIG
    # Without an exception, the elastic agent has reported a process that ended without an error message.
    code = _get_shell_code(failure)
    if not failure.exception and code in exit_codes:
        return exit_codes[code]
    return error_parser.parse_reported_cause(file) or _classify_failure(failure)


def _get_shell_code(failure: Failure) -> int:
    """Return the exit code as a shell reports it: 128 + n for a process that signal n has ended."""
    return failure.exit_code if failure.exit_code >= 0 else 128 - failure.exit_code


def _classify_failure(failure: Failure) -> Cause:
    cause = classify(failure)
    if cause is Cause.USER_ERROR and is_consequence(failure):
        return Cause.SYSTEM_ERROR  # The worker only lost a peer, and the end of the peer is unknown.
    return cause


def split_error_files(
    files: Sequence[ErrorFile], pods: Sequence[Pod]
) -> tuple[list[ErrorFile], list[ErrorFile]]:
    """Split error files into final ones and those of workers that were restarted and have not ended.

    The error file of a worker that succeeded after a restart is in neither list.
    """
    split: dict[str | None, list[ErrorFile]] = {None: [], "alive": [], "well": []}
    if files:
        by_name = {name: [pod] for pod in pods for name in (pod.replica, pod.name)}
        for file in files:
            writers = by_name.get(file.worker, []) if file.worker else pods
            split[_find_common_fate(file, writers)].append(file)
    return split[None], split["alive"]


def _find_common_fate(file: ErrorFile, writers: Iterable[Pod]) -> str | None:
    fates = {_find_writer_fate(file, pod) for pod in writers} or {None}
    return max(fates, key=_FATE_ORDER.index)


_FATE_ORDER: Final = ("well", "alive", None)


def has_writer_restarted(file: ErrorFile, pods: Sequence[Pod]) -> bool:
    """True if the worker of the error file has been started again after it wrote the file."""
    writers = (pod for pod in pods if file.worker in ("", pod.name, pod.replica))
    return file.at is not None and any(_has_restarted_since(file, pod) for pod in writers)


def is_recovery_implied(file: ErrorFile, job: Job, ended: datetime | None) -> bool:
    """True if the success of the job implies that the worker of `file` was restarted and succeeded.

    The pod of the worker is gone. The success of the job implies that of the worker if the operator requires
    all workers to succeed, or if the clean pod policy deletes all pods.
    """
    role = error_parser.parse_replica_name(file.worker).partition("-")[0]
    restarts = {group.role: group.restarts for group in job.groups}
    is_required = job.clean_pod_policy == "All" or _must_succeed(role, job)
    return restarts.get(role, False) and is_required and _can_have_recovered(file, ended)


def _must_succeed(role: str, job: Job) -> bool:
    """True if a job succeeds only if the replicas of this role do."""
    # All nodes of a job without roles must succeed, also if it is elastic.
    if role in ("master", "node"):
        return True
    return not (job.elastic or any(group.role == "master" for group in job.groups))


def _can_have_recovered(file: ErrorFile, ended: datetime | None) -> bool:
    return ended is not None and file.at is not None and ended - file.at > _ANEW


# The shortest time in which a container is restarted and completes any work.
_ANEW: Final = timedelta(seconds=5)


# The kubelet reports times in whole seconds, a worker in nanoseconds.
POD_TIME_RESOLUTION: Final = timedelta(seconds=1)


def _find_writer_fate(file: ErrorFile, pod: Pod) -> str | None:
    """Return ``well`` if the writer succeeded later, ``alive`` if its restart has not ended, else None."""
    if not _has_restarted_since(file, pod):
        return None
    if pod.deleted is not None:
        # A worker that exits with 0 because its pod is deleted has not completed its work.
        return "well" if _has_succeeded_by(pod, pod.deleted) else None
    ended = pod.termination
    if ended is None:
        return _FATES.get(pod.phase)
    return "well" if _is_success(pod, ended) else None


def _is_success(pod: Pod, ended: ContainerTermination) -> bool:
    return pod.phase == "Succeeded" or ended.exit_code == 0


def _has_succeeded_by(pod: Pod, at: datetime) -> bool:
    return pod.phase == "Succeeded" and has_ended_by(pod.termination, at)


_FATES: Final = {"Succeeded": "well", "Pending": "alive", "Running": "alive"}
"""The state of a worker whose container has not ended, by the phase of its pod."""


def has_ended_by(ended: ContainerTermination | None, at: datetime) -> bool:
    """True if the container had ended by time `at`."""
    return ended is not None and ended.finished is not None and ended.finished <= at


def _has_restarted_since(file: ErrorFile, pod: Pod) -> bool:
    """True if the pod, or its current container run, started after the worker wrote `file`."""
    again, began = _has_previous_run(pod.primary), _find_start(pod, pod.primary)
    if began is None or file.at is None:
        return again
    return began > file.at or (again and began - file.at > -POD_TIME_RESOLUTION)


def _has_previous_run(container: Container | None) -> bool:
    return container is not None and (container.restarts > 0 or container.last is not None)


def _find_start(pod: Pod, container: Container | None) -> datetime | None:
    """Return the start time of the last run of the container, or of the pod if it is unknown."""
    began = pod.started or pod.created
    if container is None:
        return began
    return (container.ended.started if container.ended else container.running_since) or began
