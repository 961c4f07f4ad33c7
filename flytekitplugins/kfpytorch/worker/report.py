"""Describe a failed run in at most 25 lines and the message of its exception, with the root cause first."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from flytekitplugins.kfpytorch.worker import verdict
from flytekitplugins.kfpytorch.worker.user_frames import format_frame
from kfpytorch_common.causes import Cause, Failure, Frame, RaisedException, classify, get_remedy

MOST_LINES = 25
"""Maximum lines of a report, without the lines of a message after the first `_MESSAGE_LINES`."""
LONGEST_MESSAGE = 16_000
"""Maximum characters of the message in the report of a local run."""
_LOCAL_MESSAGE_LINES = 200
_WIDTH = 110
# A line of a message is shown in full up to this length; longer ones may contain a tensor.
_LONGEST_LINE = 2_000
_MESSAGE_LINES = 5
_FRAMES = 4
_LAST_WORDS = 4
_FATES = 4
# A message may contain terminal escape sequences, but a report is also shown in a browser.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, kw_only=True)
class FailureReport:
    """The data about a failed run that a report shows."""

    task: str
    verdict: verdict.FailureAnalysis
    ranks: int
    well: Sequence[Failure] = ()
    """The ranks that ended with exit code 0."""
    seconds: float
    last_words: Sequence[str] = ()
    """The last lines of output of the failed rank."""
    logs: str = ""
    """The directory with the logs of all ranks; empty without logs."""
    verbose: bool = False
    at_terminal: bool = True
    """True if the reader can run the task again from a terminal; False in a pod."""

    @property
    def cause(self) -> Failure:
        """The failure that the report is about."""
        return self.verdict.cause


def render(after: FailureReport) -> str:
    """Return the report, without a trailing newline.

    The first line contains the rank, its replica, the exception and the line of the user's code.
    """
    cause = after.cause
    place = f"{format_rank(cause)} after {after.seconds:.1f} s ({classify(cause).value})"
    message = _describe_exception(after)
    lines = [
        f"✗ {after.task} failed on {place}: {_format_headline(after.verdict)}",
        *message,
        *_list_chain(cause.chain),
        *_describe_hang(after.verdict),
        *_list_missing(after),
        *_list_frames(cause.frames),
        *_list_last_lines(after),
    ]
    foot = [
        *_list_others(after),
        *_wrap_labelled("hint", _get_remedy(cause)),
        *_list_logs(after),
        *_list_verbose_hint(after),
    ]
    if after.verbose and cause.traceback:
        return "\n".join([*lines, *foot, cause.traceback.rstrip()])
    most = MOST_LINES + max(0, len(message) - _MESSAGE_LINES)
    return _CONTROL.sub("", "\n".join([*lines[: most - len(foot)], *foot]))


def format_failure(failure: Failure) -> str:
    """Return one line: ``rank 1 (node 0): ValueError: no data, at train.py:7 in train``."""
    place = f", at {format_frame(failure.frames[-1])}" if failure.frames else ""
    first_line = failure.message.partition("\n")[0]
    what = (
        f"{failure.exception}: {first_line}"
        if failure.exception
        else failure.signal or f"exit code {failure.exit_code}"
    )
    return f"{format_rank(failure)}: {what}{place}"


def render_start_error(task: str, error: Exception) -> str:
    """Return the report about a run that did not start."""
    lines = textwrap.wrap(f"{type(error).__name__}: {error}", _WIDTH, break_long_words=False)
    return "\n".join([f"✗ {task} did not run", *(f"  {line}" for line in lines)])


def format_rank(failure: Failure) -> str:
    """Return ``rank 1 (worker-0)``, or the part of it that is known."""
    if failure.rank is None:
        return failure.replica
    return f"rank {failure.rank} ({failure.replica})" if failure.replica else f"rank {failure.rank}"


def _format_headline(analysis: verdict.FailureAnalysis) -> str:
    cause = analysis.cause
    if analysis.early:
        return _format_early(analysis)
    kind = cause.exception or (
        f"killed by {cause.signal}" if cause.signal else f"exit code {cause.exit_code}"
    )
    headline = " ".join(
        filter(
            None, [kind, _format_collective(cause), f"at {_format_position(cause)}" if cause.frames else ""]
        )
    )
    if not verdict.is_waiting(cause) and cause.exception != verdict.COLLECTIVE_MISMATCH:
        return headline
    elsewhere = _group_ranks(
        [(_format_waiting(other), other) for other in analysis.others if verdict.is_waiting(other)]
    )
    differing = [
        f"{_format_ranks(ranks)} {fate}"
        for fate, ranks in elsewhere.items()
        if fate != _format_waiting(cause)
    ]
    return f"{headline}; {'; '.join(differing[:2])}" if differing else headline


def _format_early(analysis: verdict.FailureAnalysis) -> str:
    """Return ``rank 1 returned before the others; rank 0 waited for it in barrier at train.py:9``."""
    has_returned = all(each.message and not each.exception for each in analysis.early)
    verb = "returned" if has_returned else "exited with code 0"
    ended = [each.rank for each in analysis.early if each.rank is not None]
    waiting = _group_ranks(
        [(_format_waiting(other), other) for other in analysis.others if verdict.is_waiting(other)]
    )
    fate, ranks = next(iter(waiting.items()), ("", []))
    them = "it" if len(ended) == 1 else "them"
    waited = f"; {_format_ranks(ranks)} {fate.replace('waited', f'waited for {them}', 1)}" if ranks else ""
    return f"{_format_ranks(ended)} {verb} before the others{waited}"


def _group_ranks(items: Sequence[tuple[str, Failure]]) -> dict[str, list[int]]:
    """Group the ranks by text, in the order of the texts."""
    ranks: dict[str, list[int]] = {}
    for text, failure in items:
        if failure.rank is not None:
            ranks.setdefault(text, []).append(failure.rank)
    return ranks


def _format_waiting(failure: Failure) -> str:
    return " ".join(
        filter(
            None,
            [
                "waited",
                _format_collective(failure),
                f"at {_format_position(failure)}" if failure.frames else "",
            ],
        )
    )


def _format_collective(failure: Failure) -> str:
    return f"in {failure.collective}" if failure.collective else ""


def _format_position(failure: Failure) -> str:
    return format_frame(failure.frames[-1])


def _list_missing(after: FailureReport) -> list[str]:
    """Return lines about the ranks that a hanging rank waited for, and their positions."""
    if classify(after.cause) is not Cause.HANG or after.cause.rank is None:
        return []
    lines = [
        f"  it waited for rank {other.rank}, which was {_format_last_frame(other) or 'somewhere else'}"
        for other in after.verdict.others
        if other.stopped and not other.waiting
    ]
    ended = sorted(each.rank for each in after.well if each.rank is not None)
    if ended and after.at_terminal:
        lines.append(f"  it waited for {_format_ranks(ended)}, which had already ended")
    return lines[:_FRAMES]


def _describe_exception(after: FailureReport) -> list[str]:
    """Return the exception and its message, without wrapping."""
    cause = after.cause
    if not cause.exception:
        exit_text = (
            f"killed by {cause.signal}" if cause.signal else f"exit code {cause.exit_code}, without a word"
        )
        return [f"  {exit_text} (process {cause.pid})"]
    text = f"{cause.exception}: {cause.message}" if cause.message else cause.exception
    if after.verdict.early and cause.frames:  # The first line has the position of the waiting ranks.
        text = f"{text}, at {_format_position(cause)}"
    lines = _limit_characters(text).splitlines() if after.at_terminal else text.splitlines()
    most = _LOCAL_MESSAGE_LINES if after.at_terminal else _MESSAGE_LINES
    # Flyte's console has less space than a terminal.
    selected = lines[:most] if after.at_terminal else [_shorten(line) for line in lines[:most]]
    if len(lines) > most:
        selected[-1] = f"… ({len(lines) - most + 1} more lines, in the log)"
    return [f"  {line}" for line in selected]


def _limit_characters(text: str) -> str:
    left = len(text) - LONGEST_MESSAGE
    return f"{text[:LONGEST_MESSAGE]}… ({left} more characters, in the log)" if left > 0 else text


def _shorten(line: str) -> str:
    left = len(line) - _LONGEST_LINE
    return f"{line[:_LONGEST_LINE]}… ({left} more characters, in the log)" if left > 0 else line


def _list_chain(chain: Sequence[RaisedException]) -> list[str]:
    """Return a line for each exception that led to the shown one, the nearest first."""
    lines = []
    for each in reversed(chain):
        message = each.message.partition("\n")[0]
        place = f", at {format_frame(each.frames[-1])}" if each.frames else ""
        how = "raised while handling" if each.handled else "caused by"
        lines.append(_shorten(f"  {how} {each.exception}{f': {message}' if message else ''}{place}"))
    return lines


def _list_frames(frames: Sequence[Frame]) -> list[str]:
    """Return the code of the line that failed, then its callers, innermost first."""
    if not frames:
        return []
    callers = [
        line
        for frame in reversed(frames[-_FRAMES:-1])
        for line in (f"    {format_frame(frame)}", f"      {frame.code[:_WIDTH]}")
    ]
    return [f"    ❱ {frames[-1].code[:_WIDTH]}", *callers]


def _format_last_frame(other: Failure) -> str:
    return f"at {format_frame(other.frames[-1])}" if other.frames else ""


def _list_last_lines(after: FailureReport) -> list[str]:
    if after.cause.exception:
        return []  # The exception explains more than the output before it.
    words = list(after.last_words)[-_LAST_WORDS:]
    return ["  its last lines:", *(f"    {_shorten(line)}" for line in words)] if words else []


def _list_others(after: FailureReport) -> list[str]:
    cause = after.cause
    if after.ranks <= 1 or cause.rank is None:
        return []
    early = {each.rank for each in after.verdict.early}
    fates = _group_ranks(
        [(_describe_fate(other, cause), other) for other in after.verdict.others if other is not cause]
    )
    well = [each for each in after.well if each.rank not in early]
    fates.update(_group_ranks([("ended well", each) for each in well]))
    parts = [
        _ALSO.format(_format_ranks(ranks)) if fate == _ALSO else f"{_format_ranks(ranks)} {fate}"
        for fate, ranks in fates.items()
    ]
    lines = _wrap_labelled("others", "; ".join(parts))
    return lines if len(lines) <= _FATES else [*lines[: _FATES - 1], "         …"]


_ALSO = "also on {}"


def _describe_fate(other: Failure, cause: Failure) -> str:
    if verdict.is_waiting(other):
        return _format_waiting(other)
    if other.stopped:
        return f"stopped {_format_last_frame(other)}".rstrip()
    if not other.exception:
        return f"ended by {other.signal or other.exit_code}"
    if _is_same(other, cause):
        return _ALSO
    return f"failed with {other.exception} {_format_last_frame(other)}".rstrip()


def _is_same(one: Failure, other: Failure) -> bool:
    """True if two ranks raised the same error independently; a message may contain the rank."""
    same_line = one.frames[-1:] == other.frames[-1:] if one.frames else one.message == other.message
    return one.exception == other.exception and same_line


def _format_ranks(ranks: Sequence[int]) -> str:
    """Return ``rank 3``, or ``ranks 0, 2-7``."""
    known = sorted(ranks)
    runs: list[list[int]] = []
    for rank in known:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [part for run in runs for part in (map(str, run) if len(run) < 3 else [f"{run[0]}-{run[-1]}"])]
    listed = ", ".join(parts[:8]) + (" …" if len(parts) > 8 else "")
    return f"rank {listed}" if len(known) == 1 else f"ranks {listed}"


def _get_remedy(cause: Failure) -> str:
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
    lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [f"  {label if first == 0 else '':<6} {line}" for first, line in enumerate(lines)]


def _list_logs(after: FailureReport) -> list[str]:
    # Not wrapped, so that the path can be copied.
    return [f"  {'logs':<6} {after.logs}"] if after.logs else []


def _list_verbose_hint(after: FailureReport) -> list[str]:
    if after.verbose or not after.at_terminal or not after.cause.traceback:
        return []
    return _wrap_labelled(
        "more", "pyflyte -v run …, or FLYTE_KFPYTORCH_VERBOSE=1, shows all ranks and the traceback"
    )


def list_positions(stopped: Sequence[Failure]) -> list[str]:
    """Return a line for each line of code at which ranks were stopped: ``ranks 0, 1 at train.py:9 in train``.

    A last line names the ranks that are in different collectives.
    """
    ranks = _group_ranks([(_format_stop(each), each) for each in stopped])
    return [
        *(f"{_format_ranks(members)} {place}" for place, members in ranks.items()),
        *_compare_collectives(stopped),
    ]


def _describe_hang(analysis: verdict.FailureAnalysis) -> list[str]:
    waiting = [each for each in (analysis.cause, *analysis.others) if verdict.is_waiting(each)]
    is_hang = not analysis.early and verdict.is_waiting(analysis.cause)
    return [f"  {line}" for line in _compare_collectives(waiting)] if is_hang else []


# A peer of these calls another one.
_POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})


def _compare_collectives(ranks: Sequence[Failure]) -> list[str]:
    """Return a line if ranks are in different collectives, or no line."""
    inside = [each for each in ranks if each.frames and each.collective not in {"", *_POINT_TO_POINT}]
    if len({each.collective for each in inside}) < 2:
        return []
    places = _group_ranks(
        [(f"{_format_collective(each)} at {_format_position(each)}", each) for each in inside]
    )
    listed = [f"{_format_ranks(members)} {place}" for place, members in places.items()]
    return ["ranks are in different collectives: " + ", ".join(listed[:_FATES])]


def _format_stop(stopped: Failure) -> str:
    place = _format_last_frame(stopped) or "at an unknown place"
    return f"{place}, waiting in {stopped.collective}" if stopped.collective else place
