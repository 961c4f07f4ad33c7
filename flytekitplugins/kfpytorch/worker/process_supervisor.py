"""The process supervisor, which starts, watches and stops a group of processes."""

import contextlib
import json
import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from flytekitplugins.kfpytorch.worker import failure_file
from flytekitplugins.kfpytorch.worker.console import Console
from flytekitplugins.kfpytorch.worker.positions import RankPositions
from flytekitplugins.kfpytorch.worker.process_group import ProcessGroup, ProcessSpec, SupervisedProcess
from kfpytorch_common.deferred_signals import DeferredSignals, Handler, defer_signals
from kfpytorch_common.forkserver.child import ASK_WHERE
from kfpytorch_common.forkserver.client import ForkServerGone


class SigtermReceived(SystemExit):
    """This process received SIGTERM, because of a preemption or a scale-in. This is not a failure."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


def _raise_sigterm(*_: object) -> NoReturn:
    raise SigtermReceived


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
# Seconds to wait after the first failure, so that the failures of other processes are recorded too.
_SETTLE: Final = 0.5
_TICK: Final = 1.0
# Maximum time to wait for the stacks of ranks on request, and the interval between checks (seconds).
_LONGEST_ANSWER: Final = 1.0
_LOOK: Final = 0.02


@dataclass
class ProcessSupervisor:
    """Runs processes until all have ended, one has failed, or the deadline is reached."""

    group: ProcessGroup
    console: Console
    directory: Path
    """The directory of the run. It contains the socket for requests of `kfpytorch stacks`."""
    deadline: float = math.inf
    """The time of `time.monotonic()` at which the supervisor stops the processes that still run."""
    timed_out: bool = False
    _events: bytes = b""
    _handlers: dict[int, Callable[[], None]] = field(default_factory=dict)
    """The function to call when a descriptor, the key, is readable; without descriptors of the console."""
    _positions: RankPositions = field(init=False)

    def run(self, processes: Sequence[ProcessSpec]) -> list[SupervisedProcess]:
        """Start `processes`, close their streams in this process, and return them when all have ended.

        If one process fails, or at the deadline, stop the others.

        Raises:
            SigtermReceived: This process received SIGTERM.
            KeyboardInterrupt: This process received SIGINT.
        """
        # Signals are deferred also during the stop, so that a second Ctrl-C leaves no processes behind.
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        with (
            defer_signals(*_SIGNALS, handlers=self._build_signal_handlers()) as signals,
            contextlib.closing(RankPositions(self.directory)) as self._positions,
        ):
            self._handlers = {
                self.group.client.fileno(): self.group.collect_exits,
                reader: partial(self._read_events, reader),
                signals.reader: signals.clear,
            }
            if (listener := self._positions.fileno()) is not None:
                self._handlers[listener] = self._positions.accept_client
            try:
                try:
                    for process in processes:
                        self.group.start(process, writer)
                        signals.deliver()
                finally:
                    for fd in {writer}.union(*(process.streams for process in processes)):
                        os.close(fd)
                self._watch_processes(signals)
            finally:
                self._stop_and_drain(reader)
            signals.deliver()
        return self.group.members

    def _build_signal_handlers(self) -> dict[int, Handler]:
        """Return the handlers of the signals during a run.

        SIGTERM raises `SigtermReceived`. SIGINT prints the lines of code that the ranks execute, and then
        calls the handler that was set before the run. SIGUSR1 prints these lines, unless the user's program
        has set its own handler.
        """
        handlers: dict[int, Handler] = {signal.SIGTERM: _raise_sigterm}
        if callable(interrupt := signal.getsignal(signal.SIGINT)):
            handlers[signal.SIGINT] = partial(self._interrupt, interrupt)
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            handlers[signal.SIGUSR1] = lambda *_: self._print_positions()
        return handlers

    def _watch_processes(self, signals: DeferredSignals) -> None:
        deadline, has_failed = self.deadline, False
        while self.group.list_running():
            signals.deliver()
            self._poll_events(max(0.0, min(_TICK, deadline - time.monotonic())))
            self._answer_clients()
            if not has_failed and self.group.has_failure():
                deadline, has_failed = time.monotonic() + _SETTLE, True
            if time.monotonic() >= deadline:
                self.timed_out = not has_failed and bool(self.group.list_running())
                return

    def _answer_clients(self) -> None:
        if self._positions.has_clients():
            logs = f", logs in {self.console.directory}" if self.console.directory is not None else ""
            self._positions.reply([f"process {os.getpid()}{logs}", *self._request_positions()])

    def _poll_events(self, timeout: float) -> None:
        for fd in cast("list[int]", wait([*self._handlers, *self.console.list_readable()], timeout)):
            if fd in self._handlers:
                self._handlers[fd]()
            else:
                self.console.read_available(fd)
        self.console.show_redrawn(time.monotonic())

    def _read_events(self, events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._events += os.read(events, 1 << 16)
        *lines, self._events = self._events.split(b"\n")
        for line in lines:
            self._handle_event(json.loads(line))

    def _handle_event(self, event: dict[str, Any]) -> None:
        if event["event"] == "started":
            self.console.set_rank(event["slot"], event["rank"])
            self._positions.set_rank(event["slot"], event["rank"], Path(event["directory"]))
        elif event["event"] == "input":
            self.console.request_input(event["slot"])
        elif event["event"] == "notice":
            self.console.print_line(event["text"])
        elif event["event"] == "failed":
            failure = failure_file.read_failure(Path(event["directory"]))
            if failure is not None:
                self.console.append_text(failure.rank, failure.traceback)
        else:
            self.console.print_line(f"{event['why']}: all ranks restart, {event['left']} restart(s) left")

    def _interrupt(self, proceed: Callable[[int, Any], Any], *signal_and_frame: Any) -> None:
        """Print the lines of code that the ranks execute, then call `proceed`, the previous handler."""
        if self.console.directory is not None:
            self.console.print_line(f"interrupted, logs of all ranks in {self.console.directory}")
        with contextlib.suppress(ForkServerGone):
            self._print_positions()
        proceed(*signal_and_frame)

    def _print_positions(self) -> None:
        for line in self._request_positions():
            self.console.print_line(line)

    def _request_positions(self) -> list[str]:
        self._positions.clear_stacks()
        for member in self.group.list_running():
            self.group.client.signal_child(member.child, ASK_WHERE)
        deadline = time.monotonic() + _LONGEST_ANSWER
        while not self._positions.are_complete() and time.monotonic() < deadline:
            self._poll_events(_LOOK)
        return self._positions.describe()

    def _stop_and_drain(self, events: int) -> None:
        with contextlib.suppress(ForkServerGone):  # The error was raised already where it was noticed.
            self.group.stop(signal.SIGTERM, self._poll_events)
            # The server handles releases in order. When it replies to this, all processes are gone.
            self.group.client.wait_until_handled()
        with contextlib.suppress(BlockingIOError):
            self._read_events(events)
        self.console.read_remaining()
        os.close(events)
