"""The message for a failed job, with the location and the details of its root cause."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from backend_plugin.core.judging.job_status import JobStatus
from backend_plugin.core.judging.messages import format_unused_outputs, get_remedy, join_lines
from backend_plugin.core.judging.terminations import ReplicaTermination
from kfpytorch_common import causes
from kfpytorch_common.causes import CLUSTER_REMEDIES, Cause, Failure, Frame, RaisedException, classify

_USER_FRAME: Final = re.compile(r'File "([^"\n]{1,300})", line (\d{1,7}), in (\S{1,100})')
# This project's packages are listed too, for developers who run them from a checkout.
_INSTALLED: Final = (
    "site-packages/",
    "dist-packages/",
    "/lib/python3",
    "/flytekit/",
    "/flytekitplugins/",
    "/kfpytorch_common/",
)
_WORD: Final = re.compile(r"(?:restarted \d{1,10} times, after )?([A-Z][A-Za-z]{2,60})(?=[:,]|$)")
_TRACEBACK: Final = "Traceback (most recent call last)"
_FIRST_LINE: Final = 300
_MORE: Final = 300


def get_termination_reason(termination: ReplicaTermination) -> str:
    """Return the reason of a termination in one word, such as ``ValueError`` or ``OOMKilled``.

    It is the first of these that exists: the class of the exception, ``Deleted`` for a replica that was
    stopped without an exit code, the reason that Kubernetes reports, the signal, or else ``ExitCode``.
    """
    if termination.failure.exception:
        return termination.failure.exception.rpartition(".")[2]
    if termination.failure.stopped and not termination.failure.exit_code:
        return "Deleted"
    first = _WORD.match(termination.summary)
    return first[1] if first else termination.failure.signal or "ExitCode"


def format_failure(status: JobStatus, termination: ReplicaTermination, note: str, *, retry: bool) -> str:
    """Return the message for a failed job with the root cause `termination`.

    The first line contains the replica, the failure, its location and its cause. Details, the text `note`
    and the remedy follow. `retry` is true if another attempt may succeed.
    """
    failure = termination.failure
    replica = failure.replica or "a replica"
    replica = replica if failure.rank is None else f"rank {failure.rank} ({replica})"
    verdict = f"{replica} failed: {termination.summary}".replace("\n", " ")[:_FIRST_LINE]
    others = status.terminated - 1
    return join_lines(
        f"{verdict}{_find_location(failure)} ({termination.cause.value})",
        _format_details(termination),
        f"{others} more of {status.total} replicas failed after it" if others > 0 and status.total else "",
        note,
        format_unused_outputs(status),
        _select_hint(termination),
        _format_retry_outlook(termination, retry=retry),
    )


def _select_hint(termination: ReplicaTermination) -> str:
    failure = termination.failure
    # Use the remedy for the failure only if `classify` returns the same cause that was found for the replica.
    ended = failure if failure.exception else replace(failure, message=termination.detail)
    is_known = termination.cause not in CLUSTER_REMEDIES and termination.cause is classify(ended)
    hint = causes.get_remedy(ended) if is_known else get_remedy(termination.cause)
    if any((hint, failure.exception, termination.detail)) or termination.cause is not Cause.USER_ERROR:
        return hint
    return "it reported no error; the last lines of its log may show the reason"


def _format_retry_outlook(termination: ReplicaTermination, *, retry: bool) -> str:
    if termination.failure.recoverable:
        # Flyte's code in the container also marks its own errors as recoverable, not only the author's code.
        return "" if termination.cause is Cause.SYSTEM_ERROR else "marked as recoverable by the task"
    if retry:
        return ""
    sure = "may" if causes.is_unexplained(termination.failure) else "would"
    return f"another attempt {sure} fail the same way"


def _find_location(failure: Failure) -> str:
    """Return the failed line of the user's code, such as ``, at train.py:9 in main``; empty if unknown."""
    if failure.frames:
        return f", at {_format_frame(failure.frames[-1])}"
    users = [match for match in _USER_FRAME.findall(failure.traceback) if not _is_installed(match[0])]
    return f", at {users[-1][0]}:{users[-1][1]} in {users[-1][2]}" if users else ""


def _format_frame(frame: Frame) -> str:
    return f"{frame.file}:{frame.line} in {frame.function}"


def _is_installed(file: str) -> bool:
    return file.startswith("<") or any(part in file for part in _INSTALLED)


def _format_details(termination: ReplicaTermination) -> str:
    failure = termination.failure
    full_text = failure.message.partition("\n")[2] if failure.exception else termination.detail
    lines = [line.rstrip() for line in full_text.strip().splitlines() if line.strip()]
    selected = [
        *(lines[:5] if failure.exception else _select_last_lines(lines)),
        *map(_format_earlier_exception, reversed(failure.chain[-3:])),
    ]
    return "\n".join(f"  {line[:_MORE]}" for line in selected)


def _select_last_lines(lines: Sequence[str]) -> Sequence[str]:
    """Return the last five of `lines`.

    If the line that names the last exception is not among these, return it and the last four lines.
    """
    tracebacks = [index for index, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    omitted = lines[tracebacks[-1] + 1 : -5] if tracebacks else ()
    exception = next((line for line in omitted if not line[0].isspace()), None)
    return lines[-5:] if exception is None else [exception, *lines[-4:]]


def _format_earlier_exception(raised: RaisedException) -> str:
    users = [frame for frame in raised.frames if not _is_installed(frame.file)]
    place = f", at {_format_frame(users[-1])}" if users else ""
    how = "raised while handling" if raised.handled else "caused by"
    line = raised.message.partition("\n")[0]
    return f"{how} {raised.exception}{f': {line}' if line else ''}{place}"
