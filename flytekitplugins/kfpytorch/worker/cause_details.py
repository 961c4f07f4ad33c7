"""Describe the root cause of a failed run: exception, earlier exceptions, lines of code and output."""

from collections.abc import Sequence
from typing import Final

from flytekitplugins.kfpytorch.worker import rank_groups, verdict
from flytekitplugins.kfpytorch.worker.user_frames import format_frame
from kfpytorch_common.causes import Failure, Frame, RaisedException

WIDTH: Final = 110
"""The maximum number of characters of a line in the report; longer lines are wrapped or cut."""
MESSAGE_LINES: Final = 5
"""The maximum number of lines of an exception message in the report of a run in a pod."""
# Maximum characters and lines of the message in the report of a local run.
_LONGEST_MESSAGE: Final = 16_000
_LOCAL_MESSAGE_LINES: Final = 200
# A line of a message is shown in full up to this length; longer ones may contain a tensor.
_LONGEST_LINE: Final = 2_000
_FRAMES: Final = 4
_LAST_WORDS: Final = 4


def format_exit(failure: Failure) -> str:
    """Return how a process ended, such as ``killed by SIGKILL`` or ``exit code 1``."""
    return f"killed by {failure.signal}" if failure.signal else f"exit code {failure.exit_code}"


def describe_exception(analysis: verdict.FailureAnalysis, *, at_terminal: bool) -> list[str]:
    """Return lines about the root cause: its exception and message, or its exit if it has no exception.

    `at_terminal` is False in a pod. The lines of an exception are then limited to `MESSAGE_LINES`.
    """
    cause = analysis.cause
    if not cause.exception:
        suffix = "" if cause.signal else ", without a message"
        return [f"  {format_exit(cause)}{suffix} (process {cause.pid})"]
    # After an early exit, the first line of the report contains the position of the waiting ranks instead.
    place = rank_groups.format_position(cause) if analysis.early else ""
    message = ": ".join(filter(None, [cause.exception, cause.message]))
    text = ", ".join(filter(None, [message, place]))
    return [f"  {line}" for line in _limit_lines(text, at_terminal=at_terminal)]


def _limit_lines(text: str, *, at_terminal: bool) -> list[str]:
    if at_terminal:
        lines, most = shorten(text, _LONGEST_MESSAGE).splitlines(), _LOCAL_MESSAGE_LINES
    else:  # Flyte's console has less space than a terminal.
        lines, most = [shorten(line) for line in text.splitlines()], MESSAGE_LINES
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"… ({len(lines) - most + 1} more lines, in the log)"]


def shorten(text: str, most: int = _LONGEST_LINE) -> str:
    """Return `text`, cut after `most` characters, with a note about how many characters were cut."""
    left = len(text) - most
    return f"{text[:most]}… ({left} more characters, in the log)" if left > 0 else text


def list_chain(chain: Sequence[RaisedException]) -> list[str]:
    """Return a line for each earlier exception that led to the root cause, the latest first."""
    lines = []
    for each in reversed(chain):
        message = each.message.partition("\n")[0]
        place = f", at {format_frame(each.frames[-1])}" if each.frames else ""
        how = "raised while handling" if each.handled else "caused by"
        lines.append(shorten(f"  {how} {each.exception}{f': {message}' if message else ''}{place}"))
    return lines


def list_frames(frames: Sequence[Frame]) -> list[str]:
    """Return lines with the line of code that failed and the calls that led to it, innermost call first."""
    if not frames:
        return []
    callers = [
        line
        for frame in reversed(frames[-_FRAMES:-1])
        for line in (f"    {format_frame(frame)}", f"      {frame.code[:WIDTH]}")
    ]
    return [f"    ❱ {frames[-1].code[:WIDTH]}", *callers]


def list_last_lines(cause: Failure, last_words: Sequence[str]) -> list[str]:
    """Return lines with the last output of the failed rank; an empty list if the rank raised an exception."""
    if cause.exception:
        return []  # The exception explains more than the output before it.
    words = list(last_words)[-_LAST_WORDS:]
    return ["  its last lines:", *(f"    {shorten(line)}" for line in words)] if words else []
