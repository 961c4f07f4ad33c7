"""The user-facing messages about a job."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from backend_plugin.core.judging.job_status import JobState, JobStatus
from backend_plugin.core.judging.pending import JobWarning, PendingReason, PendingStage
from backend_plugin.core.judging.pending_reasons import is_blocking
from backend_plugin.core.values import JsonValue, join_first
from kfpytorch_common.causes import CLUSTER_REMEDIES, REMEDIES, Cause

LONGEST: Final = 1_000
# Only so many characters are cleaned; more than `LONGEST`, because cleaning makes a text shorter.
_READ: Final = 8 * LONGEST
# Terminal escape sequences, control characters and surrogates, which cannot be encoded.
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]")
_NAMED: Final = 4

STATES: Final = {
    JobState.UNSEEN: "AwaitingOperator",
    JobState.CREATED: "Created",
    JobState.SUSPENDED: "Suspended",
    JobState.ADMITTED: "Created",
    JobState.RUNNING: "Running",
    JobState.RESTARTING: "Restarting",
    JobState.SUCCEEDED: "Succeeded",
    JobState.FAILED: "Failed",
    JobState.DELETED: "Deleted",
    JobState.GONE: "JobNotFound",
}
"""The reason that is reported for each state of a job if there is no more precise reason."""

DELETION: Final = {JobState.DELETED: "is being deleted", JobState.GONE: "was deleted"}
LOSS: Final = {JobState.DELETED: "is being deleted", JobState.GONE: "no longer exists"}


def shorten_message(message: str) -> str:
    """Return the text, truncated to `LONGEST` characters.

    A space replaces each terminal escape sequence and each control character except the newline.
    """
    begin = message[:_READ]
    clean = begin if begin.isprintable() else _CONTROL.sub(" ", begin)
    return clean if len(clean) <= LONGEST else clean[: LONGEST - 2].rstrip() + " …"


def join_lines(*parts: str) -> str:
    """Join the non-empty parts, one per line."""
    return "\n".join([part for part in parts if part])


def format_duration(limit: timedelta) -> str:
    """Return a duration as ``2 h 30 min`` or ``90 s``."""
    minutes, seconds = divmod(int(limit.total_seconds()), 60)
    if seconds or minutes < 2:
        return f"{minutes * 60 + seconds} s"
    hours, minutes = divmod(minutes, 60)
    return " ".join(f"{count} {unit}" for count, unit in ((hours, "h"), (minutes, "min")) if count)


def get_remedy(cause: Cause) -> str:
    """Return the remedy for a cause in one sentence; may be empty."""
    return CLUSTER_REMEDIES.get(cause) or REMEDIES.get(cause, "")


def select_remedy(wait: PendingReason) -> str:
    """Return the remedy for a pending reason; may be empty."""
    if wait.remedy:
        return wait.remedy
    if wait.never and wait.cause is Cause.QUEUE:
        return "it requests more than it can ever get: request less, or use another queue"
    return get_remedy(wait.cause)


def format_unused_outputs(status: JobStatus) -> str:
    """Return a line that states that a failed job has outputs; empty if it has none."""
    return "its outputs were written, but are not used" if status.outputs else ""


def format_missing_pods(status: JobStatus) -> str:
    """Return a line on the number of pods that no longer exist; empty if all exist.

    A replaced pod counts as missing, except in a job that can run with fewer replicas.
    """
    count = status.total - len(status.pods) + (0 if status.scales else len(status.replaced))
    if count <= 0:
        return ""
    return (
        f"{count} of its {status.total} pods no longer exist; find out what deleted them: "
        "a user, a node drain or a lost node"
    )


def format_pending(wait: PendingReason) -> str:
    """Return the message line that states a pending reason."""
    if wait.of_gang or not wait.replicas:
        return wait.text
    names = join_first(wait.replicas, _NAMED)
    if wait.shortages:  # The sentence states already what the replicas wait for.
        return f"{names}: {wait.text}"
    reason = f", {wait.reason}" if wait.reason and wait.stage > PendingStage.UNPLACED else ""
    return f"{names} {_VERBS[wait.stage]}{reason}: {wait.text}"


_VERBS: Final = {
    PendingStage.HELD: "waiting",
    PendingStage.UNPLACED: "waiting for a node",
    PendingStage.STARTING: "starting",
    PendingStage.RESTARTING: "restarting",
}


def format_progress(status: JobStatus, notes: Sequence[JobWarning], *, queued: bool) -> str:
    """Return the message for a job that has not ended; `queued` is true if its phase is QUEUED."""
    state = _format_state(status, queued=queued)
    warnings = [note.text for note in notes]
    reasons = [text for each in status.waits[:6] if (text := format_pending(each))]
    if not reasons:
        return join_lines(state, *warnings)
    first = status.waits[0]
    remedy = select_remedy(first) if is_blocking(first) else ""
    return join_lines(f"{reasons[0]} ({state})", *reasons[1:], *warnings, remedy, _format_raw(first))


def _format_raw(wait: PendingReason) -> str:
    has_details = wait.raw not in wait.text and (wait.of_gang or not wait.replicas)
    return f"message of its scheduler: {wait.raw}" if has_details else ""


def _format_state(status: JobStatus, *, queued: bool) -> str:
    if status.state is JobState.SUSPENDED:
        return "suspended by a queue or a user"
    if queued and not status.waits:
        return "created; no further status yet"
    state = f"{status.ready} of {status.total} replicas ready"
    if status.state is JobState.RESTARTING and status.condition is not None:
        return "; ".join(filter(None, (state, status.condition.message)))
    return state


def build_custom_info(
    status: JobStatus, cause: Cause | None, notes: Sequence[JobWarning]
) -> Mapping[str, JsonValue]:
    """Return state, replica counts, pending reasons and warnings of a job, for Flyte's `custom_info`."""
    info: dict[str, JsonValue] = {
        "state": status.state.value,
        "job": status.job.name if status.job else "",
        "namespace": status.job.namespace if status.job else "",
        "replicas": status.total,
        "ready": status.ready,
    }
    if cause is not None:
        info["cause"] = cause.value
    if waits := status.waits[:6]:
        info["waits"] = [shorten_message(format_pending(each)) for each in waits]
        info["details"] = [shorten_message(each.raw or each.text) for each in waits]
    if notes:
        info["notes"] = [shorten_message(note.text) for note in notes]
    if status.root_cause is not None:
        info["failed"] = status.root_cause.failure.replica
    return info
