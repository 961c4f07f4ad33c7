"""A failure on one screen: the cause first, at most 25 lines."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kfpytorch_common.causes import Cause, Failure, Frame, classify, remedy

MOST_LINES = 25
_WIDTH = 110
_MESSAGE_LINES = 5
_FRAMES = 4
_LAST_WORDS = 4
_FATES = 4
# A message may hold the escapes of a terminal; a report is also read in a browser.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, kw_only=True)
class Aftermath:
    """What is known of a run that failed."""

    task: str
    cause: Failure
    others: Sequence[Failure]
    """What became of the other ranks, as far as it is not their success."""
    ranks: int
    seconds: float
    last_words: Sequence[str] = ()
    """The last lines that the failed rank wrote."""
    logs: str = ""
    """The directory with every rank's log; empty when there is none."""
    verbose: bool = False
    at_terminal: bool = True
    """A person reads it who can run it again; in a pod nobody can."""


def render(after: Aftermath) -> str:
    """The report, without a line end.

    The first line says which rank, the second what, the third where.
    """
    cause = after.cause
    lines = [
        f"✗ {after.task} failed on {where(cause)} after {after.seconds:.1f} s ({classify(cause).value})",
        *_what(cause, _missing(after)),
        *_frames(cause.frames),
        *_last_words(after),
    ]
    foot = [*_others(after), *_labelled("hint", _hint(cause)), *_logs(after), *_more(after)]
    if after.verbose and cause.traceback:
        return "\n".join([*lines, *foot, cause.traceback.rstrip()])
    return _CONTROL.sub("", "\n".join([*lines[: MOST_LINES - len(foot)], *foot]))


def in_one_line(failure: Failure) -> str:
    """``rank 1 (node 0): ValueError: no data, at train.py:7 in train``."""
    place = f", at {_place(failure.frames[-1])}" if failure.frames else ""
    said = failure.message.partition("\n")[0]
    what = (
        f"{failure.exception}: {said}"
        if failure.exception
        else failure.signal or f"exit code {failure.exit_code}"
    )
    return f"{where(failure)}: {what}{place}"


def refusal(task: str, error: Exception) -> str:
    """A run that did not begin, and why."""
    lines = textwrap.wrap(f"{type(error).__name__}: {error}", _WIDTH, break_long_words=False)
    return "\n".join([f"✗ {task} did not run", *(f"  {line}" for line in lines)])


def where(failure: Failure) -> str:
    """``rank 1 (worker-0)``, with all that is known."""
    if failure.rank is None:
        return failure.replica
    return f"rank {failure.rank} ({failure.replica})" if failure.replica else f"rank {failure.rank}"


def _missing(after: Aftermath) -> list[str]:
    """When a rank waited in vain: for whom, and what they did instead."""
    if classify(after.cause) is not Cause.HANG or after.cause.rank is None:
        return []
    known = {other.rank for other in after.others} | {after.cause.rank}
    lines = [
        f"  it waited for rank {other.rank}, which was {_whereabouts(other) or 'somewhere else'}"
        for other in after.others
        if other.stopped and not other.waiting
    ]
    ended = sorted(set(range(after.ranks)) - known)
    if ended and after.at_terminal:
        lines.append(f"  it waited for {_named(ended)}, which had already ended")
    return lines[:_FRAMES]


def _what(cause: Failure, missing: list[str]) -> list[str]:
    """The exception, who is missing, the place in the user's code, the rest of the message."""
    place = [f"  at {_place(cause.frames[-1])}"] if cause.frames else []
    if not cause.exception:
        said = f"killed by {cause.signal}" if cause.signal else f"exit code {cause.exit_code}, without a word"
        return [f"  {said} (process {cause.pid})", *place]
    text = f"{cause.exception}: {cause.message}" if cause.message else cause.exception
    wrapped = [part for line in text.splitlines() for part in textwrap.wrap(line, _WIDTH) or [""]]
    shown = wrapped[:_MESSAGE_LINES]
    if len(wrapped) > len(shown):
        shown[-1] = f"… ({len(wrapped) - len(shown) + 1} more lines, in the log)"
    return [f"  {shown[0]}", *missing, *place, *(f"  {line}" for line in shown[1:])]


def _frames(frames: Sequence[Frame]) -> list[str]:
    """The line that failed, then its callers, innermost first; its place stands above already."""
    if not frames:
        return []
    callers = [
        line
        for frame in reversed(frames[-_FRAMES:-1])
        for line in (f"    {_place(frame)}", f"      {frame.code[:_WIDTH]}")
    ]
    return [f"    ❱ {frames[-1].code[:_WIDTH]}", *callers]


def _whereabouts(other: Failure) -> str:
    return f"at {_place(other.frames[-1])}" if other.frames else ""


def _place(frame: Frame) -> str:
    path = Path(frame.file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{frame.line} in {frame.function}"


def _last_words(after: Aftermath) -> list[str]:
    if after.cause.exception:
        return []  # The exception says more than the lines before it.
    words = list(after.last_words)[-_LAST_WORDS:]
    return ["  its last lines:", *(f"    {line[:_WIDTH]}" for line in words)] if words else []


def _others(after: Aftermath) -> list[str]:
    rest = after.ranks - 1
    if rest <= 0 or after.cause.rank is None:
        return []
    fates: dict[str, list[int]] = {}
    for other in after.others:
        if other.rank is not None and other.rank != after.cause.rank:
            fates.setdefault(_fate(other), []).append(other.rank)
    told = {rank for ranks in fates.values() for rank in ranks} | {after.cause.rank}
    well = sorted(set(range(after.ranks)) - told)
    if well and after.at_terminal:  # In a pod, the ranks of other pods are unknown.
        fates["ended well"] = well
    parts = [f"{_named(ranks)} {fate}" for fate, ranks in fates.items()]
    lines = _labelled("others", "; ".join(parts))
    return lines if len(lines) <= _FATES else [*lines[: _FATES - 1], "         …"]


def _fate(other: Failure) -> str:
    if other.stopped:
        return f"{'waited' if other.waiting else 'stopped'} {_whereabouts(other)}".rstrip()
    return (
        f"followed with {other.exception}"
        if other.exception
        else f"ended by {other.signal or other.exit_code}"
    )


def _named(ranks: Sequence[int]) -> str:
    known = sorted(ranks)
    listed = ", ".join(str(rank) for rank in known[:8]) + (" …" if len(known) > 8 else "")
    return f"rank {listed}" if len(known) == 1 else f"ranks {listed}"


def _hint(cause: Failure) -> str:
    if classify(cause) is Cause.USER_ERROR and cause.exception.endswith(
        ("ModuleNotFoundError", "ImportError")
    ):
        return "the worker imports what the function uses; is it installed, and is its directory on sys.path?"
    if cause.exception == "NobodyCame":
        return (
            "are the missing pods scheduled and running? rdzv_configs={'join_timeout': seconds} waits longer"
        )
    return remedy(cause)


def _labelled(label: str, text: str) -> list[str]:
    lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [f"  {label if first == 0 else '':<6} {line}" for first, line in enumerate(lines)]


def _logs(after: Aftermath) -> list[str]:
    return [f"  {'logs':<6} {after.logs}"] if after.logs else []  # Not wrapped: a path is to be copied.


def _more(after: Aftermath) -> list[str]:
    if after.verbose or not after.at_terminal or not after.cause.traceback:
        return []
    return _labelled(
        "more", "pyflyte -v run …, or FLYTE_KFPYTORCH_VERBOSE=1, shows all ranks and the traceback"
    )


def list_positions(stopped: Sequence[Failure]) -> list[str]:
    """Return a line for each place at which ranks were stopped: ``ranks 0, 1 at train.py:9 in train``."""
    ranks: dict[str, list[int]] = {}
    for each in stopped:
        if each.rank is not None:
            ranks.setdefault(_whereabouts(each) or "at an unknown place", []).append(each.rank)
    return [f"{_named(members)} {place}" for place, members in ranks.items()]
