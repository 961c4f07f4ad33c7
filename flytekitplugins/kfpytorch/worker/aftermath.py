"""What a group of processes left behind, as Flyte understands it: a value or an exception."""

import os
import sys
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flytekit.core.context_manager import FlyteContextManager
from flytekit.exceptions.user import FlyteRecoverableException, FlyteUserRuntimeException
from flytekit.extend import IgnoreOutputs

from flytekitplugins.kfpytorch.worker import failure, mode, report, result
from kfpytorch_common.causes import Failure, root_cause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flytekitplugins.kfpytorch.worker.console import Console
    from flytekitplugins.kfpytorch.worker.group import Member


class ReplicaFailed(FlyteUserRuntimeException):  # type: ignore[misc]
    """A rank failed; the text is the report, which says which, why and where."""

    def __init__(self, text: str, timestamp: float) -> None:
        super().__init__(RuntimeError(text), timestamp=timestamp)
        self.report = text

    def __str__(self) -> str:
        """The report alone: flytekit's own words about it are in the traceback."""
        return self.report


class RecoverableReplicaFailed(FlyteRecoverableException):  # type: ignore[misc]
    """A rank raised a `FlyteRecoverableException`: a retry of the task may help."""

    def __init__(self, text: str, timestamp: float) -> None:
        super().__init__(text, timestamp=timestamp)
        self.report = text

    def __str__(self) -> str:
        """As for `ReplicaFailed`."""
        return self.report


class RunRefused(RuntimeError):
    """A run that did not begin, as `pyflyte run` sees it; elsewhere the error itself is raised."""


@dataclass
class Ended:
    """How a run ended."""

    rank_zero: Path | None = None
    """Where rank 0 left its result; None when it was not one of ours."""
    failures: list[Failure] = field(default_factory=list)
    """Of those that did not end well."""


def of_replicas(members: "Sequence[Member]") -> Ended:
    """Read what replicas left that the caller started itself."""
    failures = []
    for rank, member in enumerate(members):
        if member.code == 0:
            continue
        said = failure.read(Path(member.process.args["directory"]))
        failures.append(said or _wordless(member, rank=rank, name=member.process.name))
    first = Path(members[0].process.args["directory"])
    return Ended(first if (first / result.FILE_NAME).exists() else None, failures)


def of_nodes(members: "Sequence[Member]") -> Ended:
    """Read what the agents of nodes, and their workers, left."""
    failures: list[Failure] = []
    results: list[Path] = []
    for member in members:
        directory = Path(member.process.args["directory"])
        results += directory.glob(f"*/{result.FILE_NAME}")
        if member.code == 0:
            continue
        told = failure.read_all(directory)
        own = failure.read(directory)
        failures += told or [own or _wordless(member, rank=None, name=member.process.name)]
    newest = max(results, key=lambda path: path.stat().st_mtime_ns, default=None)
    return Ended(newest.parent if newest else None, _without_bystanders(failures))


def _without_bystanders(failures: list[Failure]) -> list[Failure]:
    """Leave out agents that ended only because they were stopped, if a rank says more."""
    telling = [each for each in failures if not (each.stopped and each.rank is None)]
    return telling or failures


def _wordless(member: "Member", *, rank: int | None, name: str) -> Failure:
    frames, waiting = failure.whereabouts(Path(member.process.args["directory"]))
    return Failure(
        frames=frames,
        waiting=waiting,
        rank=rank,
        replica=name,
        exit_code=member.code if member.code is not None else -9,
        time_ns=member.ended_ns,
        pid=member.pid,
        stopped=member.stopped,
    )


def timeout(limit: timedelta, stopped: "Sequence[Failure]") -> Failure:
    """Return the failure of a local run that took longer than the timeout of its task.

    Args:
        limit: The timeout.
        stopped: The ends of the ranks that were stopped, with their positions.
    """
    text = f"the task ran longer than {limit.total_seconds():g} s, its @task(timeout=...)"
    return Failure(
        rank=None,
        replica="all ranks",
        exit_code=1,
        time_ns=time.time_ns(),
        exception="TaskTimeout",
        message="\n".join([text, *report.list_positions(stopped)]),
    )


def no_result(time_ns: int) -> Failure:
    """Rank 0 ended well as far as the system knows, and said nothing."""
    said = "it ended with exit code 0 before the function returned"
    return Failure(rank=0, replica="", exit_code=0, time_ns=time_ns, exception="NoResult", message=said)


def exception(task: Any, console: "Console", ended: Ended, ranks: int, seconds: float) -> Exception:
    """The failure of a run, to be raised; under `pyflyte run` the report is on the screen by then."""
    cause = root_cause(ended.failures)
    last_words = _last_words(console, cause)
    for each in ended.failures:
        console.last(each.rank, each.traceback)
    logs = _log_of(console, cause)
    text = report.render(
        report.Aftermath(
            task=task.name,
            cause=cause,
            others=[each for each in ended.failures if each is not cause],
            ranks=ranks,
            seconds=seconds,
            last_words=last_words,
            logs=logs,
            verbose=mode.verbose(os.environ),
            at_terminal=console.directory is not None,
        )
    )
    kind = RecoverableReplicaFailed if cause.recoverable else ReplicaFailed
    if not mode.under_pyflyte_run():
        return kind(text, cause.time_ns / 1e9)
    return _said(kind, text, text, cause.time_ns / 1e9)


def refusal(task: Any, error: Exception) -> Exception:
    """An error that kept the run from beginning; under `pyflyte run` it is on the screen by then."""
    if not mode.under_pyflyte_run():
        return error
    return _said(RunRefused, report.refusal(task.name, error), str(error))


def _said(kind: type[Exception], text: str, *args: Any) -> Exception:
    """Print `text`; the exception, as one that makes click exit with 1 and print nothing more."""
    import click

    print(text, file=sys.stderr, flush=True)  # noqa: T201 - for the person at the terminal.
    error: Any = type(kind.__name__, (kind, click.exceptions.Exit), {})(*args)
    error.exit_code = 1
    quiet: Exception = error
    return quiet


def _last_words(console: "Console", cause: Failure) -> list[str]:
    return [line for slot in console.slots if slot.rank == cause.rank for line in slot.last_words()]


def _log_of(console: "Console", cause: Failure) -> str:
    if console.directory is None:
        return ""
    own = console.directory / f"rank{cause.rank}.log"
    return f"{own} (all ranks beside it)" if own.exists() else str(console.directory)


def handed_over(outcome: result.ElasticWorkerResult | None) -> Any:
    """Give flytekit the value of rank 0, with its decks and metadata, as if it were computed here.

    Raises:
        IgnoreOutputs: Rank 0 ran somewhere else.
    """
    if outcome is None:
        raise IgnoreOutputs
    import flytekit
    from flytekit.deck.deck import TimeLineDeck

    parameters = flytekit.current_context()
    for deck in outcome.decks:
        if not isinstance(deck, TimeLineDeck):
            parameters.decks.append(deck)
    tracker = FlyteContextManager.current_context().output_metadata_tracker
    if outcome.om and tracker is not None:
        tracker.add(outcome.return_value, outcome.om)
    return outcome.return_value
