"""The processes that a fork server has started for a run, with their exits."""

import time
from dataclasses import dataclass, field

from flytekitplugins.kfpytorch.worker.launch_settings import ProcessSpec
from kfpytorch_common.forkserver.client import ChildSpec, Client


@dataclass
class SupervisedProcess:
    """A process that a `ProcessGroup` has started, with its exit."""

    process: ProcessSpec
    child: int
    pid: int
    code: int | None = None
    ended_ns: int = 0
    stopped: bool = False


@dataclass
class ProcessGroup:
    """The processes of a run."""

    client: Client
    members: list[SupervisedProcess] = field(default_factory=list)

    def start(self, process: ProcessSpec, ends: dict[int, list[int]], events: int) -> None:
        """Start a process with the descriptors of its slots (`ends`) and with `events` for its events."""
        streams = [fd for slot in process.slots for fd in ends[slot]]
        # The streams of the process, the events, then for an agent three streams for each of its workers.
        fds = [*streams[:3], events, *streams[3:]]
        job = ChildSpec(target=process.target, args=process.args, env=process.env, serve=process.is_agent)
        child, pid = self.client.start(job, fds)
        self.members.append(SupervisedProcess(process, child, pid))

    def collect_exits(self) -> None:
        """Record the exits that the fork server has reported."""
        by_child = {member.child: member for member in self.members}
        for child, code in self.client.wait_for_exits():
            if child in by_child:
                by_child[child].code, by_child[child].ended_ns = code, time.time_ns()

    def has_failure(self) -> bool:
        """True if a process has ended with an exit code other than 0."""
        return any(member.code for member in self.members)

    def list_running(self) -> list[SupervisedProcess]:
        """Return the processes that have not ended."""
        return [member for member in self.members if member.code is None]
