"""The agent of one node of an elastic job: torch's agent, with workers from the fork server.

The fork server is a helper process that imports torch once, and forks the agents and the workers.

torch handles the rendezvous, the ranks and the restarts. This module starts, watches and stops workers
through the extension point that `SimpleElasticAgent` documents.
"""

import json
import os
import pickle
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from torch.distributed.elastic.agent.server.api import (
    RunResult,
    SimpleElasticAgent,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher import api as launcher

from flytekitplugins.kfpytorch.worker import (
    failure_file,
    launch_settings,
    loopback,
    report,
    torch_rendezvous,
    verdict,
)
from kfpytorch_common.caught import Caught, catch
from kfpytorch_common.causes import Failure
from kfpytorch_common.forkserver.client import ChildSpec, Client

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

    from kfpytorch_common.forkserver.child import ChildStart

EXIT_FAILED: Final = 1
EXIT_RENDEZVOUS: Final = 3

# Time for other workers to fail after the first failure (seconds). Their failures show its consequences.
_SETTLE: Final = 0.3
_LONGEST_REASON: Final = 300
_GENERATION: Final = "kfpytorch/generation"
# torch's loop sleeps before each check of the workers. This value makes `_monitor_workers` wait instead.
_NO_SLEEP: Final = 1e-6
# The settings that torch's `LaunchConfig` does not have.
_OF_PLUGIN: Final = frozenset({"shutdown_timeout", "on_one_machine"})
# Time for a worker to write its stack in a signal handler (seconds).
_WRITE_WHERE: Final = 0.1


@dataclass(frozen=True)
class AgentSpec:
    """The node of this agent and the settings of its workers."""

    index: int
    directory: str
    """The directory with the settings and the outcome, and a subdirectory for each worker."""
    places: list[dict[str, Any]]
    """The fields of a `replica.WorkerContext` for each local rank."""


def main(start: "ChildStart") -> int:
    """Run the agent of one node, in a child of the fork server, and return its exit code."""
    node = AgentSpec(**start.args)
    assert start.server is not None  # noqa: S101 - an agent is started with `serve`.
    directory = Path(node.directory)
    settings = (directory / launch_settings.FILE_NAME).read_bytes()
    launch: launch_settings.ElasticLaunchConfig = pickle.loads(settings)  # noqa: S301 - from our caller.
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        signal.signal(getattr(signal, name), _raise_signal)
    client = Client(start.server)
    with loopback.keep_stores_on_loopback():
        outcome = catch(lambda: _run_agent(launch, node, client, start.fds))
    if not isinstance(outcome, Caught):
        return EXIT_FAILED if outcome else 0
    if isinstance(outcome.error, SignalException):
        return 128 + outcome.error.sigval
    failure_file.write_failure(
        directory, outcome.error, failure_file.read_identity(f"node {node.index}"), recoverable=False
    )
    return EXIT_RENDEZVOUS


def _raise_signal(signum: int, _: object) -> None:
    raise SignalException("the agent was stopped", signal.Signals(signum))


def build_launch_config(launch: launch_settings.ElasticLaunchConfig) -> "LaunchConfig":
    """Return the settings as torch's `LaunchConfig`, which validates them.

    The class is looked up on each call, because tests and users patch it in its module.
    """
    settings = {name: value for name, value in vars(launch).items() if name not in _OF_PLUGIN}
    # Without a directory, torch creates a temporary one and does not remove it.
    return launcher.LaunchConfig(**settings, logs_specs=DefaultLogsSpecs(log_dir=os.devnull))


def _run_agent(
    launch: launch_settings.ElasticLaunchConfig, node: AgentSpec, client: Client, fds: Any
) -> list[Failure]:
    if launch.on_one_machine:
        torch_rendezvous.remove_delays()
    config = build_launch_config(launch)
    rendezvous = torch_rendezvous.create_handler(config, launch)
    spec = WorkerSpec(
        role=config.role,
        local_world_size=config.nproc_per_node,
        entrypoint=main,
        rdzv_handler=rendezvous,
        max_restarts=config.max_restarts,
        monitor_interval=_NO_SLEEP,
        local_addr=config.local_addr,
    )
    workers = _Workers(client, node, fds)
    agent = _Agent(spec, launch, workers)
    is_left_open = False
    try:
        agent.run()
    except SignalException:
        # A closed rendezvous never opens again, and the other nodes of an elastic job train on.
        is_left_open = config.min_nodes < config.max_nodes
        raise
    except RendezvousError as error:
        raise torch_rendezvous.RendezvousFailed(
            torch_rendezvous.describe_missing_nodes(rendezvous, launch)
        ) from error
    finally:
        if not is_left_open:
            rendezvous.shutdown()
        failure_file.write_terminations(Path(node.directory), agent.failures, workers.list_successes())
    return agent.failures


@dataclass
class _RunningWorker:
    worker: Worker
    child: int
    pid: int
    directory: Path
    code: int | None = None
    ended_ns: int = 0
    stopped: bool = False

    def build_failure(self) -> ProcessFailure:
        file = str(self.directory / failure_file.TORCH_FILE_NAME)
        return ProcessFailure(self.worker.local_rank, self.pid, self.code or 0, file)


class _Workers:
    """The workers of the current generation on one node. Each restart of all workers begins a generation."""

    def __init__(self, client: Client, node: AgentSpec, fds: Any) -> None:
        self._client = client
        self._node = node
        self._events, self._streams = fds[0], fds[1:]
        self.running: dict[int, _RunningWorker] = {}
        self._generation = 0

    def reset(self, generation: int) -> None:
        """Remove the previous generation of workers, and set `generation` as the number of the next one."""
        self.running.clear()
        self._generation = generation

    def start_worker(self, worker: Worker, env: Mapping[str, str]) -> _RunningWorker:
        place = self._node.places[worker.local_rank]
        directory = Path(self._node.directory) / f"{worker.local_rank}.{self._generation}"
        first = 3 * worker.local_rank
        fds = [*self._streams[first : first + 3], self._events]
        job = ChildSpec(
            target="flytekitplugins.kfpytorch.worker.replica:main",
            args={**place, "directory": str(directory)},
            env={**os.environ, **env},
        )
        child, pid = self._client.start(job, fds)
        self.running[child] = _RunningWorker(worker, child, pid, directory)
        return self.running[child]

    def wait_for_exit(self, timeout: float) -> None:
        """Wait until a worker has ended, at most `timeout` seconds."""
        has_exit = any(each.code is not None for each in self.running.values())
        self._record_exits(0 if has_exit else timeout)

    def _record_exits(self, timeout: float) -> None:
        for child, code in self._client.wait_for_exits(timeout):
            if child in self.running:
                self.running[child].code, self.running[child].ended_ns = code, time.time_ns()

    def list_failures(self) -> list[Failure]:
        """Return the terminations of workers that ended with an exit code other than 0."""
        return [self._read_termination(each) for each in self.running.values() if each.code]

    def list_successes(self) -> list[Failure]:
        """Return the terminations of workers that ended with exit code 0."""
        return [self._read_termination(each) for each in self.running.values() if each.code == 0]

    def _read_termination(self, ended: _RunningWorker) -> Failure:
        known = Failure(
            rank=ended.worker.global_rank,
            local_rank=ended.worker.local_rank,
            replica=self._node.places[ended.worker.local_rank]["replica"],
            exit_code=ended.code or 0,
            time_ns=ended.ended_ns,
            pid=ended.pid,
            stopped=ended.stopped,
        )
        return failure_file.get_process_failure(ended.directory, known)

    def send_event(self, event: Mapping[str, Any]) -> None:
        """Send an event to the caller; events are shorter than PIPE_BUF, so that each write is atomic."""
        slot = self._node.places[0]["slot"]
        os.write(self._events, json.dumps({"slot": slot, **event}).encode() + b"\n")

    def list_running(self) -> list[_RunningWorker]:
        return [each for each in self.running.values() if each.code is None]

    def wait_for_all(self, patience: float) -> None:
        """Wait until all workers have ended, at most `patience` seconds."""
        deadline = time.monotonic() + patience
        while self.list_running() and (left := deadline - time.monotonic()) > 0:
            self._record_exits(left)

    def stop_all(self, signum: int, launch: launch_settings.ElasticLaunchConfig) -> None:
        """Stop all workers with `signum`, then after `shutdown_timeout` with SIGKILL, and release them."""
        self._request_stacks()
        for number in (signum, signal.SIGKILL):
            for each in self.list_running():
                each.stopped = True
                self._client.signal_group(each.child, number)
            self.wait_for_all(launch.shutdown_timeout)
        for each in self.running.values():
            self._client.release(each.child)

    def _request_stacks(self) -> None:
        running = self.list_running()
        if running and failure_file.ASK_WHERE is not None:
            for each in running:
                self._client.signal_child(each.child, failure_file.ASK_WHERE)
            self.wait_for_all(_WRITE_WHERE)


class _Agent(SimpleElasticAgent):
    def __init__(
        self, spec: WorkerSpec, launch: launch_settings.ElasticLaunchConfig, workers: _Workers
    ) -> None:
        super().__init__(spec, exit_barrier_timeout=300)
        self._launch = launch
        self._workers = workers
        self._rounds = 0
        self._generation = 0
        self.failures: list[Failure] = []

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        """Join the other nodes, and agree on the number of this generation of workers.

        torch counts only the failures of its own node. Nodes that restart because of another node would give
        their workers a different number, and the workers would use different keys in the store.
        """
        with torch_rendezvous.replace_store(worker_group.spec.rdzv_handler, restart=self._rounds > 0):
            super()._rendezvous(worker_group)
        store = worker_group.store
        assert store is not None  # noqa: S101 - torch has just set it.
        if worker_group.group_rank == 0:
            store.set(_GENERATION, str(self._rounds))
        self._generation = int(store.get(_GENERATION))
        self._rounds += 1

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self._workers.reset(self._rounds)
        return {
            worker.local_rank: self._workers.start_worker(worker, self._build_env(worker, worker_group)).pid
            for worker in worker_group.workers
        }

    def _build_env(self, worker: Worker, group: WorkerGroup) -> dict[str, str]:
        spec = group.spec
        return {
            "RANK": str(worker.global_rank),
            "LOCAL_RANK": str(worker.local_rank),
            "GROUP_RANK": str(group.group_rank),
            "ROLE_RANK": str(worker.role_rank),
            "ROLE_NAME": spec.role,
            "LOCAL_WORLD_SIZE": str(spec.local_world_size),
            "WORLD_SIZE": str(worker.world_size),
            "GROUP_WORLD_SIZE": str(group.group_world_size),
            "ROLE_WORLD_SIZE": str(worker.role_world_size),
            # torch 2.4 sets the name of this host even if the local address differs.
            "MASTER_ADDR": loopback.find_loopback_address() or str(group.master_addr),
            "MASTER_PORT": str(group.master_port),
            "TORCHELASTIC_RESTART_COUNT": str(self._generation),
            "TORCHELASTIC_MAX_RESTARTS": str(spec.max_restarts),
            "TORCHELASTIC_RUN_ID": spec.rdzv_handler.get_run_id(),
            "TORCHELASTIC_USE_AGENT_STORE": str(spec.rdzv_handler.use_agent_store),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        }

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:  # noqa: ARG002 - there is one group.
        self._workers.wait_for_exit(self._launch.monitor_interval)
        running = self._workers.running.values()
        if any(each.code for each in running):
            self._workers.wait_for_all(_SETTLE)
            self._workers.stop_all(signal.SIGTERM, self._launch)
            self.failures = self._workers.list_failures()
            self._report_restart()
            failures = {each.worker.global_rank: each.build_failure() for each in running if each.code}
            return RunResult(state=WorkerState.FAILED, failures=failures)
        if self._workers.list_running():
            return RunResult(state=WorkerState.HEALTHY)
        self.failures = []
        values = {each.worker.global_rank: None for each in running}
        return RunResult(state=WorkerState.SUCCEEDED, return_values=values)

    def _report_restart(self) -> None:
        if self._remaining_restarts > 0:
            for each in self._workers.running.values():
                if each.code:
                    self._workers.send_event({"event": "failed", "directory": str(each.directory)})
            # The outcome of the ranks of other nodes is not known here.
            well = self._workers.list_successes() if self._launch.max_nodes == 1 else []
            first = verdict.analyze_failures(self.failures, well).cause
            why = report.format_failure(first)[:_LONGEST_REASON]
            self._workers.send_event({"event": "restart", "why": why, "left": self._remaining_restarts - 1})

    # torch 2.4 passes a further argument, True if the workers restart afterwards.
    def _stop_workers(self, worker_group: WorkerGroup, **_: object) -> None:  # noqa: ARG002
        self._workers.stop_all(signal.SIGTERM, self._launch)

    def _shutdown(
        self, death_sig: signal.Signals = signal.SIGTERM, timeout: float | None = None, **_: object
    ) -> None:
        del timeout  # torch's default suits pods; the settings contain the timeout for this run.
        self._workers.stop_all(death_sig, self._launch)
        self.failures = self._workers.list_failures()
