"""Selection of the root cause among the terminations that pods, error files and events report."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from signal import SIGABRT, SIGKILL, SIGTERM
from typing import Final

from msgspec import structs

from backend_plugin.core.error_files import ErrorFile
from backend_plugin.core.judging import error_parser
from backend_plugin.core.judging.file_terminations import POD_TIME_RESOLUTION, has_ended_by
from backend_plugin.core.judging.terminations import ReplicaTermination
from backend_plugin.core.observed import Pod
from kfpytorch_common.causes import Cause, is_consequence

# How long the kubelet may take, in nanoseconds, to report a termination that the peers have noticed.
_NOTICED: Final = 10 * 10**9
_WHOLE_SECOND: Final = 10**9
# The tolerance for comparing two clocks, one of which reports whole seconds.
_SKEW: Final = timedelta(seconds=2)
# Exit codes that are likely consequences, with their order among terminations at the same time.
_DOUBTFUL: Final = {-SIGTERM: 1, -SIGABRT: 2}


# Messages of a process that received SIGTERM, or that has a child process that did.
_BY_SIGTERM: Final = re.compile(r"SignalException|got signal: 15|killed by signal: Terminated|SIGTERM")


def select_root_cause(
    ends: Sequence[ReplicaTermination], ended: datetime | None
) -> ReplicaTermination | None:
    """Return the root cause: the termination that caused the others; None if there are no terminations.

    Possible causes come first, then consequences, then stopped replicas, then terminations after `ended`, the
    end of the job. If no cause precedes `ended`, later terminations count too, because the clock of a node
    may be ahead. A tie goes to the lowest replica name.
    """
    worded = any(death.failure.exception and not is_consequence(death.failure) for death in ends)
    caused = not all(_is_after_job_end(death, ended) for death in filter(is_possible_cause, ends))

    def get_sort_key(death: ReplicaTermination) -> tuple[int, int, int, tuple[str, int], str]:
        late = _is_after_job_end(death, ended) and (caused or not _can_precede_job_end(death))
        return _compute_sort_key(death, late=late, worded=worded)

    return min(ends, key=get_sort_key, default=None)


def has_root_cause(ends: Iterable[ReplicaTermination], ended: datetime | None) -> bool:
    """True if at least one termination may have caused the others and the end of the job."""
    return any(
        _can_precede_job_end(each) if _is_after_job_end(each, ended) else is_possible_cause(each)
        for each in ends
    )


def _is_after_job_end(death: ReplicaTermination, ended: datetime | None) -> bool:
    return ended is not None and death.at is not None and death.at - ended > _SKEW


def is_possible_cause(death: ReplicaTermination) -> bool:
    """True if a termination is not the consequence of another one.

    Consequences are the loss of a peer, an end by SIGTERM or SIGABRT, and a stop, for example by the deletion
    of the pod.
    """
    failure = death.failure
    follows = failure.stopped or failure.exit_code in _DOUBTFUL or is_consequence(failure)
    return not follows and _BY_SIGTERM.search(f"{failure.exception}: {failure.message}") is None


def _can_precede_job_end(death: ReplicaTermination) -> bool:
    """True if a termination may have caused the end of the job, although its reported time is later.

    False for a consequence of another termination. Also false if the deletion of the pod was requested before
    the termination, and the cluster reports no reason why the replica was ended.
    """
    return is_possible_cause(death) and (death.explained or not death.ordered)


def _compute_sort_key(
    death: ReplicaTermination, *, late: bool, worded: bool
) -> tuple[int, int, int, tuple[str, int], str]:
    failure = death.failure
    return (
        4 if late else _compute_rank(death, worded=worded),
        _compute_cause_time(death),
        _DOUBTFUL.get(failure.exit_code, 0),
        error_parser.get_replica_sort_key(failure.replica),
        death.summary,
    )


def _compute_rank(death: ReplicaTermination, *, worded: bool) -> int:
    failure = death.failure
    by_sigterm = failure.exit_code == -SIGTERM and not (worded or death.ordered)
    if failure.stopped and not by_sigterm:
        return 3
    return 2 if is_consequence(failure) else 1


def _compute_cause_time(death: ReplicaTermination) -> int:
    """Return the time by which terminations are ordered, in nanoseconds since the epoch.

    Ten seconds are subtracted if the cluster reports why the replica was ended, because other replicas can
    have noticed the end before the report. Such a termination without a time comes first. A second is added
    if there is only an exit code and no exception, because its time is in whole seconds. Nothing is added for
    SIGKILL.
    """
    failure, when = death.failure, death.failure.time_ns
    if death.explained:
        return 0 if death.at is None else when - _NOTICED
    # The timestamp of an exit code has a resolution of one second.
    is_code = not failure.exception and failure.exit_code != -SIGKILL
    return when + _WHOLE_SECOND if is_code else when


def with_early_exits(
    death: ReplicaTermination | None, pods: Sequence[Pod], total: int
) -> ReplicaTermination | None:
    """Return `death`; if it is the loss of a peer, its summary names the peers that had exited with code 0.

    If all peers had, its cause becomes a user error: the ranks do not call the same collectives. `total` is
    the number of replicas.
    """
    if death is None or death.at is None or not is_consequence(death.failure):
        return death
    early = _find_early_exits(pods, death.at) - {death.failure.replica}
    if not early:
        return death
    names = ", ".join(sorted(early, key=error_parser.get_replica_sort_key))
    if len(early) < total - 1:
        return structs.replace(death, summary=f"{death.summary} ({names} had ended with exit code 0)")
    text = f"it waited for {names}, which had already ended with exit code 0"
    failure = replace(death.failure, exception="EarlyExit", message=f"{text}\n{death.summary}")
    return structs.replace(death, failure=failure, cause=Cause.USER_ERROR, summary=text)


def _find_early_exits(pods: Sequence[Pod], at: datetime) -> set[str]:
    return {pod.replica for pod in pods if _has_exited_with_zero(pod, at)}


def _has_exited_with_zero(pod: Pod, at: datetime) -> bool:
    ended = pod.termination
    return ended is not None and ended.exit_code == 0 and pod.deleted is None and has_ended_by(ended, at)


def select_near_files(files: Sequence[ErrorFile], ends: Sequence[ReplicaTermination]) -> list[ErrorFile]:
    """Return the error files written after the first termination in `ends`, or at most a minute before it.

    Files without a time are included. If no termination has a time, all files are included.
    """
    since = min(filter(None, [death.at for death in ends]), default=None)
    return [file for file in files if since is None or file.at is None or file.at - since >= -_WRITTEN]


def merge_terminations(
    pods: Sequence[ReplicaTermination], files: Sequence[ReplicaTermination]
) -> list[ReplicaTermination]:
    """Combine the terminations from pods and from error files.

    A file's termination replaces that of the pod that wrote the file, if the pod's has the cause user error.
    Other terminations of pods stay.
    """
    writers = {death.failure.replica for death in files}
    rest = [death for death in pods if death.cause is not Cause.USER_ERROR]
    silent = [
        death for death in pods if death.cause is Cause.USER_ERROR and death.failure.replica not in writers
    ]
    ordered = sorted(files, key=lambda death: (death.failure.time_ns, death.summary))
    of_files = [_take_pod_termination(file, silent) for file in ordered]
    return [*of_files, *silent, *rest]


def _take_pod_termination(file: ReplicaTermination, silent: list[ReplicaTermination]) -> ReplicaTermination:
    """Return an error file's termination, and remove from `silent` that of the pod that wrote the file.

    `silent` contains the terminations of pods without an error file. If `file` has a replica, nothing is
    removed. If several pods can have written the file, the most likely root cause among them is removed. If
    only one can, the result has its replica.
    """
    after = [] if file.failure.replica else [death for death in silent if _can_be_writer(death, file)]
    if not after:
        return file
    silent.remove(min(after, key=lambda death: _compute_sort_key(death, late=False, worded=True)))
    replica = after[0].failure.replica if len(after) == 1 else ""
    return structs.replace(file, failure=replace(file.failure, replica=replica))


# The longest time that a process takes to end after it has written its error file.
_WRITTEN: Final = timedelta(minutes=1)


def _can_be_writer(death: ReplicaTermination, file: ReplicaTermination) -> bool:
    if death.at is None or file.at is None:
        return True
    return -POD_TIME_RESOLUTION <= death.at - file.at <= _WRITTEN
