"""Describe a failed run, root cause first, in at most 25 lines, or more for a long exception message."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flytekitplugins.kfpytorch.worker import cause_details, rank_groups, verdict
from kfpytorch_common.causes import Cause, Failure, classify, get_remedy

MOST_LINES = 25
"""The maximum number of lines of a report. Of an exception message, only `MESSAGE_LINES` lines count."""
_MOST_MISSING = 4
# torch's messages about a lost connection have up to 400 characters, with the addresses of both peers.
_LONGEST_FIRST_LINE = 200
_VERBOSE_HINT = "pyflyte -v run …, or FLYTE_KFPYTORCH_VERBOSE=1, shows all ranks and the traceback"
# A message may contain terminal escape sequences, but a report is also shown in a browser.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, kw_only=True)
class FailureReport:
    """The data about a failed run that a report shows."""

    task: str
    verdict: verdict.FailureAnalysis
    ranks: int
    well: Sequence[Failure] = ()
    seconds: float
    last_words: Sequence[str] = ()
    logs: str = ""
    """The path of the failed rank's log file, or of the directory with all logs; empty without logs."""
    verbose: bool = False
    at_terminal: bool = True
    """True if the user can run the task again from a terminal; False in a pod."""


def render(after: FailureReport) -> str:
    """Return the report about a failed run as text, without a trailing newline.

    The first line contains the rank, its replica, the exception and the line of the user's code.
    """
    cause = after.verdict.cause
    place = f"{format_rank(cause)} after {after.seconds:.1f} s ({classify(cause).value})"
    message = cause_details.describe_exception(after.verdict, at_terminal=after.at_terminal)
    lines = [
        f"✗ {after.task} failed on {place}: {_format_headline(after.verdict)}",
        *message,
        *cause_details.list_chain(cause.chain),
        *rank_groups.describe_hang(after.verdict),
        *_list_missing(after),
        *cause_details.list_frames(cause.frames),
        *cause_details.list_last_lines(cause, after.last_words),
    ]
    foot = [
        *_list_other_ranks(after),
        *_wrap_labelled("hint", _get_remedy(cause)),
        *_iter_pointers(after),
    ]
    if after.verbose and cause.traceback:
        return "\n".join([*lines, *foot, cause.traceback.rstrip()])
    most = MOST_LINES + max(0, len(message) - cause_details.MESSAGE_LINES)
    return _CONTROL.sub("", "\n".join([*lines[: most - len(foot)], *foot]))


def _iter_pointers(after: FailureReport) -> Iterator[str]:
    if after.logs:
        yield f"  {'logs':<6} {after.logs}"  # Not wrapped, so that the path can be copied.
    if after.verdict.cause.traceback and after.at_terminal and not after.verbose:
        yield from _wrap_labelled("more", _VERBOSE_HINT)


def format_failure(failure: Failure) -> str:
    """Return a line about a failure: ``rank 1 (node 0): ValueError: no data, at train.py:7 in train``."""
    first_line = cause_details.shorten(failure.message.partition("\n")[0], _LONGEST_FIRST_LINE)
    what = failure.signal or f"exit code {failure.exit_code}"
    if failure.exception:
        what = f"{failure.exception}: {first_line}"
    return ", ".join(filter(None, [f"{format_rank(failure)}: {what}", rank_groups.format_position(failure)]))


def render_start_error(task: str, error: Exception) -> str:
    """Return a report about a run that did not start, as text without a trailing newline."""
    lines = textwrap.wrap(f"{type(error).__name__}: {error}", cause_details.WIDTH, break_long_words=False)
    return "\n".join([f"✗ {task} did not run", *(f"  {line}" for line in lines)])


def format_rank(failure: Failure) -> str:
    """Return rank and replica, such as ``rank 1 (worker-0)``; only one of them if the other is unknown."""
    if failure.rank is None:
        return failure.replica
    return f"rank {failure.rank} ({failure.replica})" if failure.replica else f"rank {failure.rank}"


def _format_headline(analysis: verdict.FailureAnalysis) -> str:
    cause = analysis.cause
    if analysis.early:
        return _format_early(analysis)
    headline = (
        f"{cause.exception or cause_details.format_exit(cause)} {rank_groups.format_place(cause)}".rstrip()
    )
    if not verdict.is_waiting(cause) and cause.exception != verdict.COLLECTIVE_MISMATCH:
        return headline
    fates = rank_groups.group_ranks(filter(verdict.is_waiting, analysis.others), rank_groups.format_waiting)
    fates.pop(rank_groups.format_waiting(cause), None)
    differing = [f"{rank_groups.format_ranks(ranks)} {fate}" for fate, ranks in fates.items()]
    return "; ".join([headline, *differing[:2]])


def _format_early(analysis: verdict.FailureAnalysis) -> str:
    """Return a sentence about ranks that ended while other ranks waited for them in a collective.

    For example ``rank 1 returned before the others; rank 0 waited for it in barrier at train.py:9``.
    """
    has_returned = all(each.message and not each.exception for each in analysis.early)
    verb = "returned" if has_returned else "exited with code 0"
    ended = rank_groups.list_ranks(analysis.early)
    them = "it" if len(ended) == 1 else "them"
    waiting = rank_groups.list_groups(
        filter(verdict.is_waiting, analysis.others),
        lambda each: f"waited for {them} {rank_groups.format_place(each)}".rstrip(),
    )
    return "; ".join([f"{rank_groups.format_ranks(ended)} {verb} before the others", *waiting[:1]])


def _list_missing(after: FailureReport) -> list[str]:
    if classify(after.verdict.cause) is not Cause.HANG or after.verdict.cause.rank is None:
        return []
    lines = [
        f"  it waited for rank {other.rank}, which was {rank_groups.format_position(other, 'somewhere else')}"
        for other in verdict.list_stopped_elsewhere(after.verdict.others)
    ]
    ended = rank_groups.list_ranks(after.well)
    if ended and after.at_terminal:
        lines.append(f"  it waited for {rank_groups.format_ranks(ended)}, which had already ended")
    return lines[:_MOST_MISSING]


def _list_other_ranks(after: FailureReport) -> list[str]:
    cause = after.verdict.cause
    if after.ranks <= 1 or cause.rank is None:
        return []
    early = {each.rank for each in after.verdict.early}
    well = [each for each in after.well if each.rank not in early]
    groups = rank_groups.list_groups(after.verdict.others, lambda other: _describe_fate(other, cause))
    groups += rank_groups.list_groups(well, lambda _: "ended well")
    lines = _wrap_labelled("others", "; ".join(groups))
    return (
        lines
        if len(lines) <= rank_groups.MAX_GROUPS
        else [*lines[: rank_groups.MAX_GROUPS - 1], "         …"]
    )


def _describe_fate(other: Failure, cause: Failure) -> str:
    if verdict.is_waiting(other):
        return rank_groups.format_waiting(other)
    if other.stopped:
        return f"stopped {rank_groups.format_position(other)}".rstrip()
    if not other.exception:
        return f"ended by {other.signal or other.exit_code}"
    if _is_same(other, cause):
        return "raised the same error"
    return f"failed with {other.exception} {rank_groups.format_position(other)}".rstrip()


def _is_same(one: Failure, other: Failure) -> bool:
    """True if two ranks raised the same exception at the same line; their messages may differ."""
    same_line = one.frames[-1:] == other.frames[-1:] if one.frames else one.message == other.message
    return one.exception == other.exception and same_line


def _get_remedy(cause: Failure) -> str:
    if cause.recoverable:
        return (
            "the task marked this failure as recoverable: in a cluster, @task(retries=...) repeats the task"
        )
    if classify(cause) is Cause.USER_ERROR and cause.exception.endswith(
        ("ModuleNotFoundError", "ImportError")
    ):
        return "the worker imports what the function uses; is it installed, and is its directory on sys.path?"
    if cause.exception == "RendezvousFailed":
        return (
            "are the missing pods scheduled and running? rdzv_configs={'join_timeout': seconds} waits longer"
        )
    return get_remedy(cause)


def _wrap_labelled(label: str, text: str) -> list[str]:
    lines = textwrap.wrap(text, cause_details.WIDTH, break_long_words=False, break_on_hyphens=False)
    return [f"  {label if first == 0 else '':<6} {line}" for first, line in enumerate(lines)]
