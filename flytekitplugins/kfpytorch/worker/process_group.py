"""Start the processes of a task or an agent through the fork server, stop them, and record their exits."""

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from flytekitplugins.kfpytorch.worker import failure_file
from kfpytorch_common.causes import Failure
from kfpytorch_common.forkserver.child import ASK_WHERE
from kfpytorch_common.forkserver.client import ChildSpec, Client

# Seconds to wait for replicas and workers that write their stacks in a signal handler.
_WRITE_WHERE: Final = 0.1


@dataclass(frozen=True, kw_only=True)
class ProcessSpec:
    """A process to start: a replica, the agent of a node, or a worker of an agent."""

    name: str
    """The display name of the replica or node, for the failure of a process that recorded none itself."""
    target: str
    args: dict[str, Any]
    """The arguments of the target function. ``directory`` is the directory for the files of the process."""
    env: dict[str, str]
    streams: Sequence[int]
    """Descriptors for standard input, output and error; for an agent, also those of each of its workers."""
    is_agent: bool = False


@dataclass
class SupervisedProcess:
    """A process that a `ProcessGroup` has started, with its exit code when it has ended."""

    process: ProcessSpec
    child: int
    pid: int
    code: int | None = None
    ended_ns: int = 0
    stopped: bool = False

    @property
    def directory(self) -> Path:
        """The directory with the files of the process, such as the record of its failure."""
        return Path(self.process.args["directory"])

    def read_termination(self) -> Failure:
        """Return how the process ended: the failure or exit that it recorded itself, or its exit code."""
        env = {} if self.process.is_agent else self.process.env  # An agent has no rank.
        known = Failure(
            **vars(failure_file.read_identity(self.process.name, env)),
            exit_code=self.code if self.code is not None else -9,
            time_ns=self.ended_ns,
            pid=self.pid,
            stopped=self.stopped,
        )
        return failure_file.get_process_failure(self.directory, known)


@dataclass
class ProcessGroup:
    """The processes of a run, or the workers of an agent."""

    client: Client
    stop_timeout: float
    """The number of seconds between SIGTERM and SIGKILL when the processes are stopped."""
    members: list[SupervisedProcess] = field(default_factory=list)

    def start(self, process: ProcessSpec, events: int) -> SupervisedProcess:
        """Start a process. It writes events, such as its start, as JSON to the descriptor `events`."""
        fds = [*process.streams[:3], events, *process.streams[3:]]
        job = ChildSpec(target=process.target, args=process.args, env=process.env, serve=process.is_agent)
        child, pid = self.client.start(job, fds)
        self.members.append(SupervisedProcess(process, child, pid))
        return self.members[-1]

    def collect_exits(self, timeout: float = 0.0) -> None:
        """Record the exits that the fork server reported; wait at most `timeout` seconds for an exit."""
        by_child = {member.child: member for member in self.members}
        for child, code in self.client.wait_for_exits(timeout):
            if child in by_child:
                by_child[child].code, by_child[child].ended_ns = code, time.time_ns()

    def list_running(self) -> list[SupervisedProcess]:
        """Return the processes that have not ended."""
        return [member for member in self.members if member.code is None]

    def has_failure(self) -> bool:
        """True if a process has ended with an error."""
        return any(member.code for member in self.members)

    def wait_for_all(self, seconds: float, poll: Callable[[float], object]) -> None:
        """Wait at most `seconds` for the end of all processes.

        `poll` is called with a number of seconds, and waits at most that long for an event such as an exit.
        """
        deadline = time.monotonic() + seconds
        while self.list_running() and (left := deadline - time.monotonic()) > 0:
            poll(left)

    def _request_stacks(self) -> bool:
        signalled = [member for member in self.list_running() if not member.process.is_agent]
        for member in signalled:
            self.client.signal_child(member.child, ASK_WHERE)
        return bool(signalled)

    def stop(self, signum: int, poll: Callable[[float], object]) -> None:
        """Stop all processes with `signum`, and after `stop_timeout` with SIGKILL.

        First, make the running replicas and workers write their stacks; an agent requests the stacks of its
        workers. At the end, remove the processes from the fork server, which kills the remaining processes
        in their process groups. `poll` is the argument of `wait_for_all`.
        """
        if self._request_stacks():
            self.wait_for_all(_WRITE_WHERE, poll)
        for number in (signum, signal.SIGKILL):
            for member in self.list_running():
                member.stopped = True
                self.client.signal_group(member.child, number)
            self.wait_for_all(self.stop_timeout, poll)
        for member in self.members:
            self.client.release(member.child)
