"""The sentences that a user of Flyte reads about a job.

Lives here: how it is said. Does not: what is the case.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from backend_plugin.core import error_text
from backend_plugin.core.deaths import Death
from backend_plugin.core.status import JobStatus, State
from backend_plugin.core.values import JsonValue
from backend_plugin.core.waiting import is_trouble
from backend_plugin.core.waits import Note, Stage, Wait
from kfpytorch_common.causes import (
    CLUSTER_REMEDIES,
    REMEDIES,
    Cause,
    Failure,
    Frame,
    Raised,
    classify,
    is_unexplained,
)
from kfpytorch_common.causes import remedy as remedy_of

LONGEST: Final = 1_000
# Escapes become shorter, and of a text that is longer only this much is looked at.
_READ: Final = 8 * LONGEST
# A terminal's escapes, and halves of characters, which no encoder takes.
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]")
_USER_FRAME: Final = re.compile(r'File "([^"\n]{1,300})", line (\d{1,7}), in (\S{1,100})')
# Ours among them, for whoever works on us and has not installed us.
_INSTALLED: Final = (
    "site-packages/",
    "dist-packages/",
    "/lib/python3",
    "/flytekit/",
    "/flytekitplugins/",
    "/kfpytorch_common/",
)
_WORD: Final = re.compile(r"(?:restarted \d{1,10} times, after )?([A-Z][A-Za-z]{2,60})(?=[:,]|$)")
_NAMED: Final = 4
_FIRST_LINE: Final = 300
_MORE: Final = 300

STATES: Final = {
    State.UNSEEN: "Unseen",
    State.CREATED: "Created",
    State.SUSPENDED: "Suspended",
    State.ADMITTED: "Created",
    State.RUNNING: "Running",
    State.RESTARTING: "Restarting",
    State.SUCCEEDED: "Succeeded",
    State.FAILED: "Failed",
    State.DELETED: "Deleted",
    State.GONE: "Gone",
}
"""The reason of a phase about which there is nothing else to say."""

DELETION: Final = {State.DELETED: "is being deleted", State.GONE: "was deleted"}
LOSS: Final = {State.DELETED: "is being deleted", State.GONE: "is no longer there"}


def shortened(message: str) -> str:
    """At most `LONGEST` characters, cut at the end, of text that any encoder takes."""
    begin = message[:_READ]
    clean = begin if begin.isprintable() else _CONTROL.sub(" ", begin)
    return clean if len(clean) <= LONGEST else clean[: LONGEST - 2].rstrip() + " …"


def lines(*parts: str) -> str:
    """The parts that say something, a line each."""
    return "\n".join(part for part in parts if part)


def duration(limit: timedelta) -> str:
    """``2 h 30 min``, or ``90 s``."""
    minutes, seconds = divmod(int(limit.total_seconds()), 60)
    if seconds or minutes < 2:
        return f"{minutes * 60 + seconds} s"
    hours, minutes = divmod(minutes, 60)
    return " ".join(f"{count} {unit}" for count, unit in ((hours, "h"), (minutes, "min")) if count)


def job(status: JobStatus) -> str:
    """The name that kubectl takes."""
    return f"{status.job.namespace}/{status.job.name}" if status.job else "of this task"


def remedy(cause: Cause) -> str:
    """What a person can do, in one sentence; empty where the cause speaks for itself."""
    return CLUSTER_REMEDIES.get(cause) or REMEDIES.get(cause, "")


def hint(wait: Wait) -> str:
    """What a person can do about what is waited for."""
    if wait.remedy:
        return wait.remedy
    if wait.never and wait.cause is Cause.QUEUE:
        return "there will never be that much for it: ask for less, or for another queue"
    return remedy(wait.cause)


def outputs(status: JobStatus) -> str:
    """A line on outputs that a failed job left behind; empty without any."""
    return "its outputs were written, but are not used" if status.outputs else ""


def missing(status: JobStatus) -> str:
    """A line on pods that nobody can be asked about; empty where all are there.

    One in whose place there is another is gone as well; where a job may grow, later ones take no place.
    """
    replaced = () if status.job is not None and status.job.scales else status.replaced
    count = status.total - len(status.pods) + len(replaced)
    if count <= 0:
        return ""
    return (
        f"{count} of its {status.total} pods gone: look for who deleted them: a person, a drain, a lost node"
    )


def word(death: Death) -> str:
    """One word on an end: Kubernetes' own, the exception's, or the kind of end."""
    if death.failure.exception:
        return death.failure.exception.rpartition(".")[2]
    if death.failure.stopped and not death.failure.exit_code:
        return "Deleted"
    first = _WORD.match(death.said)
    return first[1] if first else death.failure.signal or "ExitCode"


def death(status: JobStatus, death: Death, note: str, *, retry: bool) -> str:
    """A failure on a few lines: who, what, where; then what the others did and what can be done."""
    failure = death.failure
    who = failure.replica or "a replica"
    who = who if failure.rank is None else f"rank {failure.rank} ({who})"
    verdict = f"{who} failed: {death.said}".replace("\n", " ")[:_FIRST_LINE]
    others = status.dead - 1
    # Of what the cluster did to it, the classification of a process knows nothing.
    ended = failure if failure.exception else replace(failure, message=death.detail)
    known = death.cause not in CLUSTER_REMEDIES and death.cause is classify(ended)
    hint = remedy_of(ended) if known else remedy(death.cause)
    wordless = death.cause is Cause.USER_ERROR and not failure.exception and not death.detail
    hint = hint or ("it left no error; the last lines of its log may say more" if wordless else "")
    place = _place(failure)
    return lines(
        f"{verdict}{place} ({death.cause.value})",
        _more(death),
        f"{others} more of {status.total} replicas failed after it" if others > 0 and status.total else "",
        note,
        outputs(status),
        hint,
        _chances(death, retry=retry),
    )


def _chances(death: Death, *, retry: bool) -> str:
    if death.recoverable:
        # Flyte's own part marks what has failed as well.
        return "" if death.cause is Cause.INFRA else "marked as recoverable by the task"
    if retry:
        return ""
    sure = "may" if is_unexplained(death.failure) else "would"
    return f"another attempt {sure} fail the same way"


def _place(failure: Failure) -> str:
    """Return the innermost line of the user's own code."""
    if failure.frames:
        return f", at {_position(failure.frames[-1])}"
    users = [match for match in _USER_FRAME.findall(failure.traceback) if not _is_installed(match[0])]
    return f", at {users[-1][0]}:{users[-1][1]} in {users[-1][2]}" if users else ""


def _position(frame: Frame) -> str:
    return f"{frame.file}:{frame.line} in {frame.function}"


def _is_installed(file: str) -> bool:
    return file.startswith("<") or any(part in file for part in _INSTALLED)


def _more(death: Death) -> str:
    """The rest of an exception's message, or the last words that a container left in its termination log."""
    failure = death.failure
    said = failure.message.partition("\n")[2] if failure.exception else death.detail
    text = [line.rstrip() for line in said.strip().splitlines() if line.strip()]
    shown = [*(text[:5] if failure.exception else text[-5:]), *map(_before, reversed(failure.chain[-3:]))]
    return "\n".join(f"  {line[:_MORE]}" for line in shown)


def _before(raised: Raised) -> str:
    """Return a line on an exception from which the failure was raised."""
    users = [frame for frame in raised.frames if not _is_installed(frame.file)]
    place = f", at {_position(users[-1])}" if users else ""
    how = "raised while handling" if raised.handled else "caused by"
    said = raised.message.partition("\n")[0]
    return f"{how} {raised.exception}{f': {said}' if said else ''}{place}"


def names(replicas: Sequence[str]) -> str:
    """``worker-0, worker-1 and 6 more``."""
    shown = sorted(replicas, key=error_text.order)
    if len(shown) <= _NAMED:
        return ", ".join(shown)
    return f"{', '.join(shown[:_NAMED])} and {len(shown) - _NAMED} more"


def wait(wait: Wait) -> str:
    """One thing that is waited for."""
    if _is_of_all(wait):
        return wait.said
    if wait.lacks:  # The sentence itself says that it waits, and for what.
        return f"{names(wait.replicas)}: {wait.said}"
    reason = f", {wait.reason}" if wait.reason and wait.stage > Stage.UNPLACED else ""
    return f"{names(wait.replicas)} {_VERBS[wait.stage]}{reason}: {wait.said}"


_VERBS: Final = {
    Stage.HELD: "waiting",
    Stage.UNPLACED: "waiting for a node",
    Stage.STARTING: "starting",
    Stage.RESTARTING: "restarting",
}


def _is_of_all(wait: Wait) -> bool:
    """Whether the job waits as a whole."""
    return wait.whole or not wait.replicas


def living(status: JobStatus, phase: str, notes: Sequence[Note]) -> str:
    """What is the case at this moment, in full."""
    begun = f"{status.ready} of {status.total} replicas ready"
    if status.state is State.SUSPENDED:
        begun = "suspended: a queue or a person holds it back"
    elif not status.waits and phase == "QUEUED":
        begun = "created; nothing more is known yet"
    elif status.state is State.RESTARTING and status.condition is not None and status.condition.message:
        begun = f"{begun}; {status.condition.message}"
    said = [wait_of for each in status.waits[:6] if (wait_of := wait(each))]
    what_helps = hint(status.waits[0]) if status.waits and is_trouble(status.waits[0]) else ""
    aloud = [note.said for note in notes]
    if not said:
        return lines(begun, *aloud)
    first = status.waits[0]
    is_news = first.raw not in first.said and _is_of_all(first)
    raw = f"in its scheduler's words: {first.raw}" if is_news else ""
    return lines(f"{said[0]} ({begun})", *said[1:], *aloud, what_helps, raw)


def info(status: JobStatus, cause: Cause | None, notes: Sequence[Note]) -> Mapping[str, JsonValue]:
    """The present state for Flyte's custom info, which changes while the phase stays the same."""
    said: dict[str, JsonValue] = {
        "state": status.state.value,
        "job": status.job.name if status.job else "",
        "namespace": status.job.namespace if status.job else "",
        "replicas": status.total,
        "ready": status.ready,
    }
    if cause is not None:
        said["cause"] = cause.value
    if status.waits:
        said["waits"] = [shortened(wait(each)) for each in status.waits[:6]]
        said["details"] = [shortened(each.raw or each.said) for each in status.waits[:6]]
    if notes:
        said["notes"] = [shortened(note.said) for note in notes]
    if status.death is not None:
        said["failed"] = status.death.failure.replica
    return said
