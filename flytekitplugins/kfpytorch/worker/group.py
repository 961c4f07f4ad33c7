"""The process supervisor, which starts, watches and stops a group of processes."""

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from flytekitplugins.kfpytorch.worker import failure
from flytekitplugins.kfpytorch.worker.activity import IdleWatch
from flytekitplugins.kfpytorch.worker.console import Console
from flytekitplugins.kfpytorch.worker.positions import Positions
from flytekitplugins.kfpytorch.worker.settings import Process
from kfpytorch_common.forkserver.client import Client, Job, ServerGone
from kfpytorch_common.held_signals import Held, held

# Time for other processes to fail after the first failure (seconds). Their failures show which ones are
# consequences.
_SETTLE: Final = 0.5
_TICK: Final = 1.0
# Time for a worker to write its stack in a signal handler (seconds).
_WRITE_WHERE: Final = 0.1
# Maximum time to wait for the stacks of ranks on request, and the interval between checks (seconds).
_LONGEST_ANSWER: Final = 1.0
_LOOK: Final = 0.02


class Terminated(SystemExit):
    """This process received SIGTERM, for a preemption or a scale-in; this is not a failure."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


@dataclass
class Member:
    """A process of the group."""

    process: Process
    child: int
    pid: int
    code: int | None = None
    ended_ns: int = 0
    stopped: bool = False


@dataclass
class Group:
    """Runs processes until all have ended, one has failed, or the deadline is reached."""

    client: Client
    console: Console
    members: list[Member] = field(default_factory=list)
    deadline: float | None = None
    """The time of the monotonic clock at which processes that still run are stopped."""
    timed_out: bool = False
    """True if the processes were stopped because of `deadline`."""
    directory: Path | None = None
    """The directory of the run, for the socket that reports the positions of its ranks."""
    _events: bytes = b""
    _signals: Held | None = None
    _positions: Positions = field(default_factory=lambda: Positions(None))

    def run(self, processes: Sequence[Process], ends: dict[int, list[int]]) -> list[Member]:
        """Start `processes` and wait until they end. On return or error, no process is left.

        Args:
            processes: The processes to start.
            ends: The descriptors of each slot, as the console opened them; this method closes them.

        Raises:
            Terminated: This process received SIGTERM.
            KeyboardInterrupt: This process received SIGINT.
        """
        # Signals are deferred also during the stop, so that a second Ctrl-C leaves no processes behind.
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        with (
            _handling(signal.SIGTERM, _terminate),
            self._handle_interrupt(reader),
            _handling(signal.SIGUSR1, lambda *_: self._say_positions(reader), replaces=False),
            held(signal.SIGINT, signal.SIGTERM, signal.SIGUSR1) as signals,
            contextlib.closing(Positions(self.directory)) as self._positions,
        ):
            self._signals = signals
            try:
                try:
                    for process in processes:
                        self._start(process, ends, writer)
                        signals.deliver()
                finally:
                    for fd in {fd for each in ends.values() for fd in each}:
                        os.close(fd)
                    os.close(writer)
                self._watch(reader, signals)
            finally:
                self._end(reader)
            signals.deliver()
        return self.members

    def _start(self, process: Process, ends: dict[int, list[int]], events: int) -> None:
        streams = [fd for slot in process.slots for fd in ends[slot]]
        # The streams of the process, the events, then for an agent three streams for each of its workers.
        fds = [*streams[:3], events, *streams[3:]]
        job = Job(target=process.target, args=process.args, env=process.env, serve=process.is_agent)
        child, pid = self.client.start(job, fds)
        self.members.append(Member(process, child, pid))

    def _watch(self, events: int, signals: Held) -> None:
        deadline: float | None = None
        while any(member.code is None for member in self.members):
            signals.deliver()
            self._look(events, self._time_to_next(deadline))
            if self._positions.is_asked():
                self._positions.reply(self._describe(events))
            if deadline is None and any(member.code for member in self.members):
                deadline = time.monotonic() + _SETTLE
            if deadline is not None and time.monotonic() >= deadline:
                return
            if deadline is None and self.deadline is not None and time.monotonic() >= self.deadline:
                self.timed_out = any(member.code is None for member in self.members)
                return

    def _time_to_next(self, deadline: float | None) -> float:
        """Return the seconds until the next deadline, at most a tick."""
        ends = [end for end in (deadline, self.deadline) if end is not None]
        return min([_TICK, *(max(0.0, end - time.monotonic()) for end in ends)])

    def _look(self, events: int, timeout: float) -> None:
        fds = [self.client.fileno(), events, *self.console.readable()]
        if self._signals is not None:
            fds.append(self._signals.fileno())
        asked = self._positions.fileno()
        if asked is not None:
            fds.append(asked)
        for fd in _readable(fds, timeout):
            if fd == self.client.fileno():
                self._collect()
            elif fd == events:
                self._hear(events)
            elif self._signals is not None and fd == self._signals.fileno():
                self._signals.heard()
            elif fd == asked:
                self._positions.accept()
            else:
                self.console.read(fd)
        self.console.show_redrawn(time.monotonic())

    def _collect(self) -> None:
        by_child = {member.child: member for member in self.members}
        for child, code in self.client.exits():
            if child in by_child:
                by_child[child].code, by_child[child].ended_ns = code, time.time_ns()

    def _hear(self, events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._events += os.read(events, 1 << 16)
        *whole, self._events = self._events.split(b"\n")
        for line in whole:
            self._react(json.loads(line))

    def _react(self, event: dict[str, Any]) -> None:
        if event["event"] == "started":
            self.console.started(event["slot"], event["rank"])
            self._positions.started(event["slot"], event["rank"], Path(event["directory"]))
        elif event["event"] == "input":
            self.console.ask(event["slot"])
        elif event["event"] == "failed":
            said = failure.read(Path(event["directory"]))
            if said is not None:
                self.console.last(said.rank, said.traceback)
        else:
            self.console.say(f"{event['why']}: all ranks restart, {event['left']} restart(s) left")

    def _handle_interrupt(self, events: int) -> contextlib.AbstractContextManager[None]:
        """Print the positions of the ranks on SIGINT before the previous handler ends the run."""
        ends = signal.getsignal(signal.SIGINT)
        if not callable(ends):
            return contextlib.nullcontext()

        def interrupt(signum: int, frame: Any) -> None:
            self._say_interrupted(events)
            ends(signum, frame)

        return _handling(signal.SIGINT, interrupt)

    def _say_interrupted(self, events: int) -> None:
        """Print the directory of the logs and the positions of the ranks before they are stopped."""
        if self.console.directory is not None:
            self.console.say(f"interrupted, logs of all ranks in {self.console.directory}")
        with contextlib.suppress(ServerGone):
            self._say_positions(events)

    def _say_positions(self, events: int) -> None:
        for line in self._find_positions(events):
            self.console.say(line)

    def _describe(self, events: int) -> list[str]:
        """Return the lines for `kfpytorch stacks`."""
        logs = f", logs in {self.console.directory}" if self.console.directory is not None else ""
        return [f"process {os.getpid()}{logs}", *self._find_positions(events)]

    def _find_positions(self, events: int) -> list[str]:
        """Make all ranks write their stacks, and return a line for each position."""
        if failure.ASK_WHERE is None:
            return ["this system has no signal that makes ranks report their positions"]
        self._positions.begin()
        for member in self._alive():
            self.client.poke(member.child, failure.ASK_WHERE)
        deadline = time.monotonic() + _LONGEST_ANSWER
        while not self._positions.are_complete() and time.monotonic() < deadline:
            self._look(events, _LOOK)
        return self._positions.describe()

    def _end(self, events: int) -> None:
        """Stop the processes that still run, then read their remaining output."""
        try:
            self._stop(events)
        except ServerGone:  # The error was raised already where it was noticed.
            self._see_out()
        with contextlib.suppress(BlockingIOError):
            self._hear(events)
        self.console.drain()
        os.close(events)

    def _see_out(self) -> None:
        """Wait for the processes of a server that is gone: they end shortly after it."""
        deadline = time.monotonic() + _SETTLE
        while (fds := self.console.streams()) and time.monotonic() < deadline:
            for fd in _readable(fds, _SETTLE):
                self.console.read(fd)

    def _stop(self, events: int) -> None:
        """Stop all processes with SIGTERM, then with SIGKILL."""
        self._ask_where(events)
        for member in self._alive():
            member.stopped = True
            self.client.kill(member.child, signal.SIGTERM)
        deadline = time.monotonic() + max((each.process.patience for each in self.members), default=0.0)
        idle = IdleWatch()
        while (alive := self._alive()) and time.monotonic() < deadline:
            self._look(events, 0.1)
            replicas = [each.pid for each in alive if not each.process.is_agent]
            # Agents stop their workers themselves.
            if len(replicas) == len(alive) and idle.is_idle(replicas, time.monotonic()):
                break
        for member in self.members:
            self.client.release(member.child)
        # The server handles releases in order. When it replies to this, all processes are gone.
        self.client.settle()

    def _ask_where(self, events: int) -> None:
        """Make replicas write their stacks before they are stopped; agents do this for their workers."""
        replicas = [member for member in self._alive() if not member.process.is_agent]
        if replicas and failure.ASK_WHERE is not None:
            for member in replicas:
                self.client.poke(member.child, failure.ASK_WHERE)
            self._look(events, _WRITE_WHERE)

    def _alive(self) -> list[Member]:
        return [member for member in self.members if member.code is None]


def _readable(fds: Sequence[int], timeout: float) -> list[int]:
    poll = select.poll()  # `select` does not support descriptors above 1023.
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(timeout * 1000)]


def _terminate(*_: object) -> None:
    raise Terminated


@contextlib.contextmanager
def _handling(signum: int, handler: Callable[..., None], *, replaces: bool = True) -> Iterator[None]:
    """Handle a signal during a run, and restore the previous handler after it.

    Args:
        signum: The signal.
        handler: The handler.
        replaces: True to replace a handler of the user's program.
    """
    if not replaces and signal.getsignal(signum) is not signal.SIG_DFL:
        yield
        return
    try:
        before = signal.signal(signum, handler)
    except ValueError:  # Not the main thread, which cannot handle signals.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signum, before)
