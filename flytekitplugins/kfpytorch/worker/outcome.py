"""Turn the outcome of a group of processes into a value or an exception of Flyte."""

import linecache
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import flytekit
from flytekit.core.context_manager import FlyteContextManager
from flytekit.deck.deck import TimeLineDeck
from flytekit.exceptions.user import FlyteRecoverableException, FlyteUserRuntimeException
from flytekit.extend import IgnoreOutputs

from flytekitplugins.kfpytorch.worker import (
    failure_file,
    rank_groups,
    report,
    result,
    runtime_info,
    user_frames,
    verdict,
)
from kfpytorch_common.caught import Caught, catch
from kfpytorch_common.causes import Failure

if TYPE_CHECKING:
    from flytekitplugins.kfpytorch.worker.console import Console
    from flytekitplugins.kfpytorch.worker.process_group import SupervisedProcess


class _FailureText:
    report: str

    def __str__(self) -> str:
        """Return the report, without the text that flytekit adds to its exceptions."""
        return self.report

    def _render_traceback_(self) -> list[str]:
        """Return the lines of the report, which IPython shows instead of a traceback."""
        return self.report.splitlines()


class ReplicaFailed(_FailureText, FlyteUserRuntimeException):  # type: ignore[misc]
    """A rank failed. The message is the report with the rank, the cause and the line of the user's code."""

    def __init__(self, text: str, timestamp: float) -> None:
        FlyteUserRuntimeException.__init__(self, RuntimeError(text), timestamp=timestamp)
        self.report = text


class RecoverableReplicaFailed(_FailureText, FlyteRecoverableException):  # type: ignore[misc]
    """A rank raised a `FlyteRecoverableException`; a retry of the task may succeed."""

    def __init__(self, text: str, timestamp: float) -> None:
        FlyteRecoverableException.__init__(self, text, timestamp=timestamp)
        self.report = text


class RunNotStarted(RuntimeError):
    """A run under `pyflyte run` did not start. Other runs raise the original error instead."""


@dataclass
class RunOutcome:
    """The failures and exits of the ranks of a run, and the directory with the result of rank 0."""

    rank_zero: Path | None = None
    """The directory with the result of rank 0; None if rank 0 does not run here or has no result."""
    failures: list[Failure] = field(default_factory=list)
    well: list[Failure] = field(default_factory=list)
    """A `Failure` record for each rank that ended with exit code 0, although this is no failure."""
    at_terminal: bool = True
    """True for a local run, False in a pod."""
    complete: bool = True
    """False if the job has ranks in other pods, because this pod does not have the outcome of those ranks."""


def collect_replicas(members: Sequence["SupervisedProcess"]) -> RunOutcome:
    """Return the outcome of a run. `members` are the processes of its ranks, in the order of the ranks."""
    first = members[0].directory
    ended = RunOutcome(first if (first / result.FILE_NAME).exists() else None)
    for member in members:
        termination = member.read_termination()
        # A stopped process can have exit code 0, because jax handles SIGTERM.
        (ended.failures if member.code or termination.stopped else ended.well).append(termination)
    return ended


def collect_nodes(members: Sequence["SupervisedProcess"]) -> RunOutcome:
    """Return the outcome of a run. `members` are the agents of its nodes, for torchelastic or MPI.

    Files in the directories of the agents contain the outcome of the ranks.
    """
    ended = RunOutcome()
    results: list[Path] = []
    for member in members:
        results += member.directory.glob(f"*/{result.FILE_NAME}")
        failures, well = failure_file.read_terminations(member.directory)
        ended.well += well
        if member.code != 0:
            ended.failures += failures or [member.read_termination()]
    newest = max(results, key=lambda path: path.stat().st_mtime_ns, default=None)
    ended.rank_zero = newest.parent if newest else None
    # Ignore the failures of agents that were only stopped, unless there are no other failures.
    relevant = [each for each in ended.failures if not (each.stopped and each.rank is None)]
    ended.failures = relevant or ended.failures
    return ended


def build_timeout_failure(limit: timedelta, ended: RunOutcome) -> Failure:
    """Return the failure of a local run that exceeded the timeout `limit` of its task.

    The message lists the ranks that still ran, with their lines of code, and the ranks that had ended.
    """
    running = rank_groups.list_ranks(ended.failures)
    well = rank_groups.list_groups(ended.well, lambda _: "ended well")
    text = f"the task ran longer than {limit.total_seconds():g} s, its @task(timeout=...)"
    return Failure(
        rank=None,
        replica=rank_groups.format_ranks(running) if running and well else "all ranks",
        exit_code=1,
        time_ns=time.time_ns(),
        exception="TaskTimeout",
        message="\n".join([text, *rank_groups.list_positions(ended.failures), *well]),
    )


def build_missing_result_failure(time_ns: int) -> Failure:
    """Return the failure of a run in which rank 0 ended with exit code 0 but wrote no result."""
    message = "it ended with exit code 0 before the function returned"
    return Failure(rank=0, replica="", exit_code=0, time_ns=time_ns, exception="NoResult", message=message)


def build_exception(
    task: Any, console: "Console", ended: RunOutcome, ranks: int, seconds: float
) -> Exception:
    """Return the exception for the failed run `ended`, with a report as its message; log the tracebacks.

    Under `pyflyte run`, print the report, and return an exception on which click exits without more output.
    """
    failed = rank_groups.list_ranks(ended.failures)
    well = [each for each in ended.well if each.rank not in failed]
    known = verdict.analyze_failures(ended.failures, well if ended.complete else [])
    slots = [slot for slot in console.slots if slot.rank == known.cause.rank]
    last_words = [line for slot in slots for line in slot.list_last_lines()]
    known = replace(known, cause=_with_source(verdict.explain_abort(known.cause, last_words)))
    for each in ended.failures:
        console.append_text(each.rank, each.traceback)
    cause = known.cause
    text = report.render(
        report.FailureReport(
            task=task.name,
            verdict=known,
            well=well,
            ranks=ranks,
            seconds=seconds,
            last_words=last_words,
            logs=_format_log_location(console, cause),
            verbose=runtime_info.is_verbose(os.environ),
            at_terminal=ended.at_terminal,
        )
    )
    kind = RecoverableReplicaFailed if cause.recoverable else ReplicaFailed
    if not runtime_info.is_under_pyflyte_run():
        if ended.at_terminal:
            _shorten_uncaught_failures()
        return kind(text, cause.time_ns / 1e9)
    return _build_printed_error(kind, text, text, cause.time_ns / 1e9)


def _shorten_uncaught_failures() -> None:
    """Make Python print only the user's frames and the report for an uncaught failure of a rank.

    Replace `sys.excepthook` if it is that of Python, or that of rich, which flytekit installs. Keep a hook
    that the user's program has set.
    """
    show_traceback = sys.excepthook
    if getattr(show_traceback, "__module__", None) not in {"sys", "rich.traceback"}:
        return

    def show_failure(kind: type[BaseException], error: BaseException, stack: TracebackType | None) -> None:
        if not isinstance(error, _FailureText) or error.__context__ is not None:
            show_traceback(kind, error, stack)
            return
        frames = user_frames.read_user_frames(traceback.extract_tb(stack))
        calls = traceback.format_list([(each.file, each.line, each.function, each.code) for each in frames])
        head = "Traceback (most recent call last):\n"
        print(head, *calls, error.report, sep="", file=sys.stderr, flush=True)  # noqa: T201 - as Python does.

    sys.excepthook = show_failure


def _with_source(failure: Failure) -> Failure:
    """Return `failure` with the source lines of frames that its rank could not read, as in notebook cells."""
    frames = [
        frame if frame.code else replace(frame, code=linecache.getline(frame.file, frame.line).strip())
        for frame in failure.frames
    ]
    return replace(failure, frames=tuple(frames))


def build_start_error(task: Any, error: Exception) -> Exception:
    """Return the exception for a run that did not start. Under `pyflyte run`, also print a report."""
    if not runtime_info.is_under_pyflyte_run():
        return error
    return _build_printed_error(RunNotStarted, report.render_start_error(task.name, error), str(error))


def _build_printed_error(kind: type[Exception], text: str, *args: Any) -> Exception:
    """Print `text`, and return an exception that makes click exit with code 1 and without further output."""
    import click

    print(text, file=sys.stderr, flush=True)  # noqa: T201 - for the user at the terminal.
    error: Any = type(kind.__name__, (kind, click.exceptions.Exit), {})(*args)
    error.exit_code = 1
    quiet: Exception = error
    return quiet


def _format_log_location(console: "Console", cause: Failure) -> str:
    if console.directory is None:
        return ""
    own = console.directory / f"rank{cause.rank}.log"
    return f"{own} (all ranks beside it)" if own.exists() else str(console.directory)


def load_result(ended: RunOutcome) -> result.ElasticWorkerResult | None:
    """Return the result of rank 0; None if the run failed, or if rank 0 ran in another pod.

    If the result cannot be loaded, return None, and set `ended.failures` to a failure of rank 0 that contains
    the error.
    """
    directory = ended.rank_zero
    if directory is None or ended.failures:
        return None
    loaded = catch(lambda: result.load(directory))
    if isinstance(loaded, Caught):
        rank_zero = failure_file.WorkerIdentity(replica="", rank=0, local_rank=None)
        failure = failure_file.build_failure(loaded.error, rank_zero, recoverable=False)
        message = f"the result of rank 0 cannot be loaded: {failure.message}"
        ended.failures = [replace(failure, message=message)]
        return None
    outcome: result.ElasticWorkerResult = loaded
    return outcome


def return_result(outcome: result.ElasticWorkerResult | None) -> Any:
    """Return the value of rank 0 to flytekit, and add its decks and metadata to the current context.

    Raises:
        IgnoreOutputs: `outcome` is None, because rank 0 ran in another pod.
    """
    if outcome is None:
        raise IgnoreOutputs
    parameters = flytekit.current_context()
    for deck in outcome.decks:
        if not isinstance(deck, TimeLineDeck):
            parameters.decks.append(deck)
    tracker = FlyteContextManager.current_context().output_metadata_tracker
    if outcome.om and tracker is not None:
        tracker.add(outcome.return_value, outcome.om)
    return outcome.return_value
