"""A group of processes from start to end: started together, watched together, gone together."""

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
from flytekitplugins.kfpytorch.worker.console import Console
from flytekitplugins.kfpytorch.worker.positions import Positions
from flytekitplugins.kfpytorch.worker.settings import Process
from kfpytorch_common.forkserver.client import Client, Job, ServerGone
from kfpytorch_common.held_signals import Held, held

# After the first failure, how long the others may take to fail by themselves (seconds): what they
# say then tells a consequence from a second fault.
_SETTLE: Final = 0.5
_TICK: Final = 1.0
# A worker writes its stack in a signal handler, at once if it is scheduled at all (seconds).
_WRITE_WHERE: Final = 0.1
# The longest wait for the stacks of ranks of which somebody asks, and the time between two looks (seconds).
_LONGEST_ANSWER: Final = 1.0
_LOOK: Final = 0.02


class Terminated(SystemExit):
    """This process was asked to end (SIGTERM): a preemption or a scale-in, not a failure."""

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
    """Runs processes until all have ended, or one has failed."""

    client: Client
    console: Console
    members: list[Member] = field(default_factory=list)
    deadline: float | None = None
    """When the processes are stopped if they still run, by the monotonic clock."""
    timed_out: bool = False
    """The processes were stopped because of `deadline`."""
    directory: Path | None = None
    """The directory of the run, for the socket on which it is asked for the positions of its ranks."""
    _events: bytes = b""
    _signals: Held | None = None
    _positions: Positions = field(default_factory=lambda: Positions(None))

    def run(self, processes: Sequence[Process], ends: dict[int, list[int]]) -> list[Member]:
        """Start `processes` and wait for their end; whatever happens, none is left.

        Args:
            processes: What to start.
            ends: The descriptors of each slot, as the console opened them; closed here.

        Raises:
            Terminated: This process received SIGTERM.
            KeyboardInterrupt: This process received SIGINT.
        """
        # Held also while the group is stopped: no second Ctrl-C leaves processes behind.
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
        # The process's own streams, the events, then for an agent three for each of its workers.
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
        """Print the positions of the ranks on SIGINT, before the handler that is there now ends the run."""
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
        """Return the answer to `kfpytorch stacks`."""
        logs = f", logs in {self.console.directory}" if self.console.directory is not None else ""
        return [f"process {os.getpid()}{logs}", *self._find_positions(events)]

    def _find_positions(self, events: int) -> list[str]:
        """Have all ranks write where they are, and return a line for each place."""
        if failure.ASK_WHERE is None:
            return ["this system has no signal with which ranks can be asked where they are"]
        self._positions.begin()
        for member in self._alive():
            self.client.poke(member.child, failure.ASK_WHERE)
        deadline = time.monotonic() + _LONGEST_ANSWER
        while not self._positions.are_complete() and time.monotonic() < deadline:
            self._look(events, _LOOK)
        return self._positions.describe()

    def _end(self, events: int) -> None:
        """Stop who still runs, then take what they said last."""
        try:
            self._stop(events)
        except ServerGone:  # Who found it gone has said so.
            self._see_out()
        with contextlib.suppress(BlockingIOError):
            self._hear(events)
        self.console.drain()
        os.close(events)

    def _see_out(self) -> None:
        """Wait for the processes of a server that is gone: they end with it, but not before it."""
        deadline = time.monotonic() + _SETTLE
        while (fds := self.console.streams()) and time.monotonic() < deadline:
            for fd in _readable(fds, _SETTLE):
                self.console.read(fd)

    def _stop(self, events: int) -> None:
        """Have all end: asked first, then killed."""
        self._ask_where(events)
        for member in self._alive():
            member.stopped = True
            self.client.kill(member.child, signal.SIGTERM)
        deadline = time.monotonic() + max((each.process.patience for each in self.members), default=0.0)
        while self._alive() and time.monotonic() < deadline:
            self._look(events, 0.1)
        for member in self.members:
            self.client.release(member.child)
        # A release is carried out in order: when the server answers, all of them are gone.
        self.client.settle()

    def _ask_where(self, events: int) -> None:
        """Have replicas that are about to be stopped write where they are; agents ask theirs themselves."""
        replicas = [member for member in self._alive() if not member.process.is_agent]
        if replicas and failure.ASK_WHERE is not None:
            for member in replicas:
                self.client.poke(member.child, failure.ASK_WHERE)
            self._look(events, _WRITE_WHERE)

    def _alive(self) -> list[Member]:
        return [member for member in self.members if member.code is None]


def _readable(fds: Sequence[int], timeout: float) -> list[int]:
    poll = select.poll()  # `select` knows no descriptor above 1023.
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(timeout * 1000)]


def _terminate(*_: object) -> None:
    raise Terminated


@contextlib.contextmanager
def _handling(signum: int, handler: Callable[..., None], *, replaces: bool = True) -> Iterator[None]:
    """Handle a signal for the time of a run, as Python does for SIGINT.

    Args:
        signum: The signal.
        handler: The handler.
        replaces: Also if the user's program handles the signal.
    """
    if not replaces and signal.getsignal(signum) is not signal.SIG_DFL:
        yield
        return
    try:
        before = signal.signal(signum, handler)
    except ValueError:  # Not the main thread: signals are somebody else's.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signum, before)
