"""Run the user's function in a worker process, and record its result or failure."""

import contextlib
import json
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import flytekit
from flytekit.core.context_manager import FlyteContextManager
from flytekit.exceptions.user import FlyteRecoverableException

from flytekitplugins.kfpytorch.error_handling import create_recoverable_error_file
from flytekitplugins.kfpytorch.worker import (
    exceptions,
    failure_file,
    jax_processes,
    loading,
    result,
    torch_adaptations,
)
from kfpytorch_common.caught import Caught, catch

if TYPE_CHECKING:
    from kfpytorch_common.forkserver.child import ChildStart

EventSender: TypeAlias = Callable[[Mapping[str, Any]], None]

# Seconds between the end of a function and the message about its threads that still run.
_WAIT_FOR_THREADS: Final = 5.0
_LONGEST_NAMES: Final = 200


@dataclass(frozen=True)
class WorkerContext:
    """The settings of a worker that its environment does not contain."""

    slot: int
    """The number of the worker's output slot, in the console of the process that started the run."""
    replica: str
    """The display name of the replica, such as ``worker-0`` or ``node 1``."""
    directory: str
    workspace: str
    """The directory for files that flytekit creates; the process that started the run removes it."""
    payload: str
    """The file with the function and its inputs, which is not read if a fork inherited them."""
    on_this_machine: bool
    """True in a local run, in which gloo replaces nccl if the machine has no GPU."""
    uses_torch: bool = True
    asks_for_input: bool = False
    """True if standard input is the user's terminal, from which lines are requested one at a time."""


def main(start: "ChildStart") -> int:
    """Run the user's function in a child of the fork server, and return the exit code of the child."""
    return run_worker(WorkerContext(**start.args), start.inherited, start.fds[0])


def run_worker(place: WorkerContext, inherited: loading.Payload | None, events: int) -> int:
    """Run the user's function, and return the exit code of the process.

    If `inherited` is None, load the function and its inputs from the file `place.payload`. Write events for
    the calling process to the descriptor `events`.
    """
    directory = Path(place.directory)
    directory.mkdir(exist_ok=True)  # Without parents: the directory of an ended run must stay deleted.
    failure_file.enable_stack_dumps(directory)
    who = failure_file.read_identity(place.replica)
    os.environ["TORCHELASTIC_ERROR_FILE"] = str(directory / "error.json")
    send_event = build_event_sender(events, place.slot)
    send_event({"event": "started", "rank": who.rank, "pid": os.getpid(), "directory": str(directory)})
    if place.asks_for_input:
        sys.stdin = _TerminalInput(send_event)
    done = catch(lambda: _run_and_save(place, inherited, who.rank), BaseException)
    _watch_threads(who.rank, send_event)
    if isinstance(done, Caught):
        code = _write_error(done.error, who, directory)
        if code and not place.uses_torch:
            jax_processes.exit_without_peers(code)
        return code
    failure_file.write_exit(directory, who)
    return 0


def _run_and_save(place: WorkerContext, inherited: loading.Payload | None, rank: int | None) -> Caught | None:
    """Run the function, and save its result if this is rank 0. Return the function's exception, if any."""
    with contextlib.ExitStack() as adapted:
        if place.uses_torch:
            adapted.enter_context(torch_adaptations.keep_stores_on_loopback())
            if place.on_this_machine:
                adapted.enter_context(torch_adaptations.replace_nccl())
        outcome = _run_function(place, inherited)
    if isinstance(outcome, Caught):
        return outcome
    directories = Path(place.directory), Path(place.workspace)
    saved = catch(lambda: result.save(outcome, *directories)) if rank == 0 else None
    if isinstance(saved, Caught):
        kind = type(outcome.return_value).__name__
        raise TypeError(f"rank 0 returned a {kind} that cannot be sent back: {saved.error}") from saved.error
    return None


def _watch_threads(rank: int | None, send_event: EventSender) -> None:
    """Send a notice to the calling process if this process waits for threads of the function at its end."""
    main_thread = threading.main_thread()

    def report() -> None:
        waited = [each.name for each in threading.enumerate() if not each.daemon and each is not main_thread]
        if names := ", ".join(waited)[:_LONGEST_NAMES]:
            text = f"rank {rank}: the function has ended, and its process waits for the thread {names}"
            send_event({"event": "notice", "text": text})

    timer = threading.Timer(_WAIT_FOR_THREADS, report)
    timer.daemon = True
    timer.start()


def _write_error(error: BaseException, who: failure_file.WorkerIdentity, directory: Path) -> int:
    exit_code = exceptions.read_exit_code(error)
    if exit_code == 0 and who.rank != 0:
        failure_file.write_exit(directory, who, error)
        return 0
    recoverable = isinstance(error, FlyteRecoverableException)
    failure_file.write_failure(directory, error, who, recoverable=recoverable)
    return exit_code or 1


def _run_function(
    place: WorkerContext, inherited: loading.Payload | None
) -> result.ElasticWorkerResult | Caught:
    if inherited is not None:
        assert inherited.function is not None  # noqa: S101 - only a pickled task has payloads without it.
        with loading.set_working_directory(place.workspace):
            return compute_result(inherited.function, inherited.inputs)
    task: loading.PickledTask = pickle.loads(Path(place.payload).read_bytes())  # noqa: S301 - from our caller.
    with loading.enter_execution(task.settings, place.workspace):
        return compute_result(*loading.load_function(task))


def compute_result(
    function: Callable[..., Any], inputs: Mapping[str, Any]
) -> result.ElasticWorkerResult | Caught:
    """Call the function, and return its value with Flyte's decks and metadata, or its exception.

    The exception is returned, because it must not pass through context managers: `contextlib` assigns
    `__traceback__`, which raises an error for some exception classes, such as frozen dataclasses.
    """
    value = catch(lambda: function(**inputs), BaseException)
    if isinstance(value, Caught):
        return value
    tracker = FlyteContextManager.current_context().output_metadata_tracker
    return result.ElasticWorkerResult(
        return_value=value,
        decks=flytekit.current_context().decks,
        om=tracker.get(value) if tracker is not None else None,
    )


def spawn_helper(
    fn: bytes,
    raw_output_prefix: str,
    checkpoint_dest: str | None,
    checkpoint_src: str | None,
    kwargs: Mapping[str, Any],
) -> result.ElasticWorkerResult:
    """Run a cloudpickled function in a separate Flyte context, and return its value, decks and metadata.

    The name and the arguments are those of flytekit's own plugin, because other packages call the function.
    `checkpoint_src` is the URL of the checkpoint of an earlier attempt; None if there was none.
    """
    function = pickle.loads(fn)  # noqa: S301 - from our caller.
    settings = loading.ExecutionSettings(raw_output_prefix, checkpoint_dest, checkpoint_src)
    with loading.enter_execution(settings, None):
        outcome = compute_result(function, kwargs)
    if not isinstance(outcome, Caught):
        return outcome
    if isinstance(outcome.error, FlyteRecoverableException):
        create_recoverable_error_file()
    raise outcome.error


def build_event_sender(fd: int, slot: int) -> EventSender:
    """Return a function that writes an event to the descriptor `fd` as JSON, with the number `slot`.

    `slot` is the number of the output slot of this process in the calling process.
    """

    def send_event(event: Mapping[str, Any]) -> None:
        # Shorter than PIPE_BUF, so that events of several workers do not mix in one pipe.
        with contextlib.suppress(BrokenPipeError):
            os.write(fd, json.dumps({"slot": slot, **event}).encode() + b"\n")

    return send_event


class _TerminalInput:
    """Standard input of rank 0, which requests a line from the calling process when the program reads a line.

    The calling process has the user's terminal, and reads one line from it for each request. `breakpoint()`
    and `input()` work, and input that the program does not read stays in the terminal.
    """

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, send_event: EventSender) -> None:
        self._send_event = send_event
        self._stream = open(0, closefd=False, errors="replace")  # noqa: SIM115 - open as long as the process.

    def readline(self, size: int = -1) -> str:
        sys.stdout.flush()
        self._send_event({"event": "input"})
        return self._stream.readline(size)

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return True
