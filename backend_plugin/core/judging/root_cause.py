"""Selection of the root cause among the terminations that pods, error files and events report."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from signal import SIGABRT, SIGKILL, SIGTERM
from typing import Final, TypeAlias

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
_SortKey: TypeAlias = tuple[int, int, int, tuple[str, int], str]


def select_root_cause(
    ends: Sequence[ReplicaTermination], ended: datetime | None
) -> ReplicaTermination | None:
    """Return the root cause: the termination that caused the others; None if there are no terminations.

    Possible causes come first, then consequences, then stopped replicas, then terminations after `ended`, the
    end of the job. If no cause precedes `ended`, later terminations count too, because the clock of a node
    may be ahead. A tie goes to the lowest replica name.
    """
    has_message = any(each.failure.exception and not is_consequence(each.failure) for each in ends)
    caused = not all(_is_after_job_end(each, ended) for each in filter(is_possible_cause, ends))

    def get_sort_key(termination: ReplicaTermination) -> _SortKey:
        late = _is_after_job_end(termination, ended) and (caused or not _can_precede_job_end(termination))
        return _compute_sort_key(termination, late=late, has_message=has_message)

    return min(ends, key=get_sort_key, default=None)


def has_root_cause(ends: Iterable[ReplicaTermination], ended: datetime | None) -> bool:
    """True if at least one termination may have caused the others and the end of the job."""
    return any(
        _can_precede_job_end(each) if _is_after_job_end(each, ended) else is_possible_cause(each)
        for each in ends
    )


def _is_after_job_end(termination: ReplicaTermination, ended: datetime | None) -> bool:
    return ended is not None and termination.at is not None and termination.at - ended > _SKEW


def is_possible_cause(termination: ReplicaTermination) -> bool:
    """True if a termination is not the consequence of another one.

    Consequences are the loss of a peer, an end by SIGTERM or SIGABRT, and a stop, for example by the deletion
    of the pod.
    """
    failure = termination.failure
    follows = failure.stopped or failure.exit_code in _DOUBTFUL or is_consequence(failure)
    return not follows and _BY_SIGTERM.search(f"{failure.exception}: {failure.message}") is None


def _can_precede_job_end(termination: ReplicaTermination) -> bool:
    """True if a termination may have caused the end of the job, although its reported time is later.

    False for a consequence of another termination. Also false if the deletion of the pod was requested before
    the termination, and the cluster reports no reason why the replica was ended.
    """
    return is_possible_cause(termination) and (termination.explained or not termination.ordered)


def _compute_sort_key(termination: ReplicaTermination, *, late: bool, has_message: bool) -> _SortKey:
    failure = termination.failure
    return (
        4 if late else _compute_rank(termination, has_message=has_message),
        _compute_cause_time(termination),
        _DOUBTFUL.get(failure.exit_code, 0),
        error_parser.get_replica_sort_key(failure.replica),
        termination.summary,
    )


def _compute_rank(termination: ReplicaTermination, *, has_message: bool) -> int:
    failure = termination.failure
    by_sigterm = failure.exit_code == -SIGTERM and not (has_message or termination.ordered)
    if failure.stopped and not by_sigterm:
        return 3
    return 2 if is_consequence(failure) else 1


def _compute_cause_time(termination: ReplicaTermination) -> int:
    """Return the time by which terminations are ordered, in nanoseconds since the epoch.

    Ten seconds are subtracted if the cluster reports why the replica was ended, because other replicas can
    have noticed the end before the report. If such a termination has no time, it comes first. One second is
    added if there is only an exit code and no exception, because the time of an exit code is in whole
    seconds. Nothing is added for SIGKILL.
    """
    failure, when = termination.failure, termination.failure.time_ns
    if termination.explained:
        return 0 if termination.at is None else when - _NOTICED
    # The timestamp of an exit code has a resolution of one second.
    is_code = not failure.exception and failure.exit_code != -SIGKILL
    return when + _WHOLE_SECOND if is_code else when


def with_early_exits(
    termination: ReplicaTermination | None, pods: Sequence[Pod], total: int
) -> ReplicaTermination | None:
    """Return `termination`; if it is the loss of a peer, its summary names the peers that had exited before.

    Only peers with exit code 0 are named. If all peers had exited with code 0, the cause becomes a user
    error, because the ranks do not call the same collectives. `total` is the number of replicas.
    """
    if termination is None or termination.at is None or not is_consequence(termination.failure):
        return termination
    early = _find_early_exits(pods, termination.at) - {termination.failure.replica}
    if not early:
        return termination
    names = ", ".join(sorted(early, key=error_parser.get_replica_sort_key))
    if len(early) < total - 1:
        summary = f"{termination.summary} ({names} had ended with exit code 0)"
        return structs.replace(termination, summary=summary)
    text = f"it waited for {names}, which had already ended with exit code 0"
    failure = replace(termination.failure, exception="EarlyExit", message=f"{text}\n{termination.summary}")
    return structs.replace(termination, failure=failure, cause=Cause.USER_ERROR, summary=text)


def _find_early_exits(pods: Sequence[Pod], at: datetime) -> set[str]:
    ends = ((pod.replica, pod.termination) for pod in pods if pod.deleted is None)
    return {
        replica for replica, end in ends if end is not None and end.exit_code == 0 and has_ended_by(end, at)
    }


def select_near_files(files: Sequence[ErrorFile], ends: Sequence[ReplicaTermination]) -> list[ErrorFile]:
    """Return the error files written after the first termination in `ends`, or at most a minute before it.

    Files without a time are included. If no termination has a time, all files are included.
    """
    since = min(filter(None, [each.at for each in ends]), default=None)
    return [file for file in files if since is None or file.at is None or file.at - since >= -_WRITTEN]


def merge_terminations(
    pods: Sequence[ReplicaTermination], files: Sequence[ReplicaTermination]
) -> list[ReplicaTermination]:
    """Combine the terminations from pods and from error files.

    A termination from a file replaces that of the pod that wrote the file, if the cause of the pod's
    termination is a user error. Other terminations of pods stay.
    """
    writers = {each.failure.replica for each in files}
    of_users = [each for each in pods if each.cause is Cause.USER_ERROR]
    rest = [each for each in pods if each.cause is not Cause.USER_ERROR]
    silent = [each for each in of_users if each.failure.replica not in writers]
    ordered = sorted(files, key=lambda each: (each.failure.time_ns, each.summary))
    of_files = [_take_pod_termination(file, silent) for file in ordered]
    return [*of_files, *silent, *rest]


def _take_pod_termination(file: ReplicaTermination, silent: list[ReplicaTermination]) -> ReplicaTermination:
    """Return `file`, the termination that an error file reports, with the replica of the pod that wrote it.

    The replica is added only if exactly one pod can have written the error file. `silent` contains the
    terminations of pods without an error file. If `file` has no replica, remove the termination of the pod
    that wrote the error file from `silent`; if several pods can have written it, remove the most likely root
    cause among their terminations.
    """
    after = [each for each in silent if not file.failure.replica and _can_be_writer(each, file)]
    if not after:
        return file
    silent.remove(min(after, key=lambda each: _compute_sort_key(each, late=False, has_message=True)))
    replica = after[0].failure.replica if len(after) == 1 else ""
    return structs.replace(file, failure=replace(file.failure, replica=replica))


# The longest time that a process takes to end after it has written its error file.
_WRITTEN: Final = timedelta(minutes=1)


def _can_be_writer(termination: ReplicaTermination, file: ReplicaTermination) -> bool:
    if termination.at is None or file.at is None:
        return True
    return -POD_TIME_RESOLUTION <= termination.at - file.at <= _WRITTEN
