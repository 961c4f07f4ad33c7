"""Choose the root cause of a failed run among the failures of its ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kfpytorch_common import causes
from kfpytorch_common.causes import Failure, is_consequence

EARLY_EXIT: Final = "EarlyExit"
COLLECTIVE_MISMATCH: Final = "CollectiveMismatch"

# Nanoseconds. If a process recorded no exit, its parent does so later. Peers may notice the exit before that.
_NOTICED: Final = 10**9


@dataclass(frozen=True, kw_only=True)
class FailureAnalysis:
    """The root cause of a failed run, and the other failures."""

    cause: Failure
    others: Sequence[Failure] = ()
    early: Sequence[Failure] = ()
    """The ranks that ended with exit code 0 while others waited for them. `cause` is then the first one."""


def analyze_failures(failures: Sequence[Failure], well: Sequence[Failure]) -> FailureAnalysis:
    """Choose the root cause of a failed run.

    `failures` contains one or more failures of ranks. `well` describes the ranks that ended with exit code 0.
    `well` is empty if the job has ranks with an unknown outcome.
    """
    unwrapped = [_unwrap(each) for each in failures]
    noticed = causes.select_root_cause(unwrapped)
    rest = [each for each in unwrapped if each is not noticed]
    early = _find_early_exits(noticed, rest, well)
    if not early:
        cause = causes.select_root_cause(failures)
        return FailureAnalysis(cause=cause, others=[each for each in failures if each is not cause])
    first = replace(early[0], exception=EARLY_EXIT, message=early[0].message or "the process ended itself")
    return FailureAnalysis(cause=first, others=rest if early == [noticed] else unwrapped, early=early)


def _unwrap(failure: Failure) -> Failure:
    """Replace the exception of `failure` by torch's error about a failed peer, if `failure.chain` has one.

    Return `failure` unchanged if its chain has no such error, or if its exception already is such an error.
    """
    consequence = None if is_consequence(failure) else causes.find_wrapped_consequence(failure)
    if consequence is None:
        return failure
    return replace(
        failure,
        exception=consequence.exception,
        message=consequence.message,
        frames=consequence.frames,
        collective=consequence.collective,
        from_torch=True,
        chain=(),
    )


def is_waiting(failure: Failure) -> bool:
    """True if a rank waited for its peers until it was stopped, or until it detected the loss of a peer."""
    return failure.waiting if failure.stopped else is_consequence(failure)


def explain_abort(cause: Failure, last_words: Sequence[str]) -> Failure:
    """Return `cause` with gloo's explanation if gloo ended the process because a peer sent too many bytes.

    `last_words` are the last lines that the process printed. In any other case, return `cause` unchanged.
    """
    mismatch = causes.MISMATCH.search("\n".join(last_words)) if cause.signal == "SIGABRT" else None
    if mismatch is None:
        return cause
    sizes = f"received {mismatch[1]} bytes and expected {mismatch[2]}"
    message = f"gloo {sizes}, and ended process {cause.pid} with SIGABRT"
    return replace(cause, exception=COLLECTIVE_MISMATCH, message=message)


def _find_early_exits(cause: Failure, others: Sequence[Failure], well: Sequence[Failure]) -> list[Failure]:
    if cause.exception == "SystemExit" and cause.exit_code == 0:
        return [cause] if any(map(is_waiting, others)) else []
    # A collective may have timed out because of a rank that ran until it was stopped.
    is_slow = causes.is_timeout(cause) and bool(list_stopped_elsewhere(others))
    if not is_consequence(cause) or is_slow:
        return []
    # The ranks that may have ended before the first rank noticed the loss of a peer.
    noticed = min(each.time_ns for each in [cause, *others] if is_consequence(each))
    early = [each for each in well if each.time_ns - (0 if each.message else _NOTICED) <= noticed]
    return sorted(early, key=lambda each: each.rank or 0)


def list_stopped_elsewhere(failures: Sequence[Failure]) -> list[Failure]:
    """Return the failures of ranks that were not in a call of torch.distributed when they were stopped."""
    return [each for each in failures if each.stopped and not each.waiting]
