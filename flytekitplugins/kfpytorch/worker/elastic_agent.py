"""The agent of one node of an elastic job: torch's agent, but the fork server starts the workers.

torch handles the rendezvous, the ranks and the restarts. This module starts, watches and stops workers, in a
subclass of torch's `SimpleElasticAgent`.
"""

import os
import pickle
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from torch.distributed.elastic.agent.server import api
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher import api as launcher

from flytekitplugins.kfpytorch.worker import (
    failure_file,
    launch_settings,
    replica,
    report,
    torch_adaptations,
    torch_rendezvous,
    verdict,
)
from flytekitplugins.kfpytorch.worker.process_group import ProcessGroup, ProcessSpec, SupervisedProcess
from kfpytorch_common.caught import Caught, catch
from kfpytorch_common.causes import Failure
from kfpytorch_common.forkserver.client import Client

if TYPE_CHECKING:
    from kfpytorch_common.forkserver.child import ChildStart

EXIT_FAILED: Final = 1
EXIT_RENDEZVOUS: Final = 3

# Seconds for which the agent waits after the first failure, so that workers that fail as a consequence of
# it can record their own failures.
_SETTLE: Final = 0.3
_GENERATION: Final = "kfpytorch/generation"
# Seconds for which torch's loop sleeps before each check of the workers. `_monitor_workers` waits instead.
_NO_SLEEP: Final = 1e-6
# The settings that torch's `LaunchConfig` does not have.
_OF_PLUGIN: Final = frozenset({"shutdown_timeout", "on_one_machine"})


def main(start: "ChildStart") -> int:
    """Run the agent of one node, in a child of the fork server, and return its exit code.

    `start.args` has two entries. ``directory`` is the directory of the node, with a file with its settings, a
    file with its outcome, and a subdirectory for each worker. ``places`` is a list with the fields of a
    `replica.WorkerContext` for each local rank.
    """
    directory = Path(start.args["directory"])
    settings = (directory / launch_settings.FILE_NAME).read_bytes()
    launch: launch_settings.ElasticLaunchConfig = pickle.loads(settings)  # noqa: S301 - from our caller.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _raise_signal)
    with torch_adaptations.keep_stores_on_loopback():
        outcome = catch(lambda: _run_agent(launch, start))
    if not isinstance(outcome, Caught):
        return EXIT_FAILED if outcome else 0
    if isinstance(outcome.error, SignalException):
        return 128 + outcome.error.sigval
    agent = failure_file.read_identity(start.args["places"][0]["replica"])
    failure_file.write_failure(directory, outcome.error, agent, recoverable=False)
    return EXIT_RENDEZVOUS


def _raise_signal(signum: int, _: object) -> None:
    raise SignalException("the agent was stopped", signal.Signals(signum))


def build_launch_config(launch: launch_settings.ElasticLaunchConfig) -> launcher.LaunchConfig:
    """Return torch's `LaunchConfig` with the settings in `launch`; torch validates them."""
    settings = {name: value for name, value in vars(launch).items() if name not in _OF_PLUGIN}
    # Without a log directory, torch creates a temporary one and does not remove it. `LaunchConfig` is not
    # imported by name, because tests and users patch it in its module.
    return launcher.LaunchConfig(**settings, logs_specs=DefaultLogsSpecs(log_dir=os.devnull))


def _run_agent(launch: launch_settings.ElasticLaunchConfig, start: "ChildStart") -> list[Failure]:
    if launch.on_one_machine:
        torch_rendezvous.remove_delays()
    config = build_launch_config(launch)
    rendezvous = torch_rendezvous.create_handler(config, launch)
    spec = api.WorkerSpec(
        role=config.role,
        local_world_size=config.nproc_per_node,
        entrypoint=main,
        rdzv_handler=rendezvous,
        max_restarts=config.max_restarts,
        monitor_interval=_NO_SLEEP,
        local_addr=config.local_addr,
    )
    agent = _Agent(spec, launch, start)
    is_left_open = False
    try:
        agent.run()
    except SignalException:
        # Do not close the rendezvous of an elastic job: its other nodes continue to train, and a closed
        # rendezvous never opens again.
        is_left_open = config.min_nodes < config.max_nodes
        raise
    except RendezvousError as error:
        raise torch_rendezvous.RendezvousFailed(
            torch_rendezvous.describe_missing_nodes(rendezvous, launch)
        ) from error
    finally:
        if not is_left_open:
            rendezvous.shutdown()
        directory = Path(start.args["directory"])
        failure_file.write_terminations(directory, agent.failures, agent.list_ended(failed=False))
    return agent.failures


class _Agent(api.SimpleElasticAgent):
    def __init__(
        self, spec: api.WorkerSpec, launch: launch_settings.ElasticLaunchConfig, start: "ChildStart"
    ) -> None:
        super().__init__(spec, exit_barrier_timeout=300)
        assert start.server is not None  # noqa: S101 - an agent is started with `serve`.
        self._launch = launch
        self._directory, self._places = start.args["directory"], start.args["places"]
        self._group = ProcessGroup(Client(start.server), launch.shutdown_timeout)
        self._events, *self._streams = start.fds
        self._send_event = replica.build_event_sender(self._events, self._places[0]["slot"])
        self._rounds = 0
        self._generation = 0
        self.failures: list[Failure] = []

    def _rendezvous(self, worker_group: api.WorkerGroup) -> None:
        """Join the other nodes, and take the number of restarts of the workers from the node of rank 0.

        torch counts only the failures of its own node, so the nodes can have different numbers. Workers with
        different values of ``TORCHELASTIC_RESTART_COUNT`` would use different keys in the store.
        """
        with torch_rendezvous.replace_store(worker_group.spec.rdzv_handler, restart=self._rounds > 0):
            super()._rendezvous(worker_group)
        store = worker_group.store
        assert store is not None  # noqa: S101 - torch has just set it.
        if worker_group.group_rank == 0:
            store.set(_GENERATION, str(self._rounds))
        self._generation = int(store.get(_GENERATION))
        self._rounds += 1

    def _start_workers(self, worker_group: api.WorkerGroup) -> dict[int, Any]:
        self._group.members.clear()
        return {
            worker.local_rank: self._start_worker(worker, self._build_env(worker, worker_group)).pid
            for worker in worker_group.workers
        }

    def _start_worker(self, worker: api.Worker, env: Mapping[str, str]) -> SupervisedProcess:
        place, first = self._places[worker.local_rank], 3 * worker.local_rank
        process = ProcessSpec(
            name=place["replica"],
            target="flytekitplugins.kfpytorch.worker.replica:main",
            args={**place, "directory": f"{self._directory}/{worker.local_rank}.{self._rounds}"},
            env={**os.environ, **env},
            streams=self._streams[first : first + 3],
        )
        return self._group.start(process, self._events)

    def _build_env(self, worker: api.Worker, group: api.WorkerGroup) -> dict[str, str]:
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
            # torch 2.4 sets `group.master_addr` to the name of this host, not to `local_addr`.
            "MASTER_ADDR": torch_adaptations.find_loopback_address() or str(group.master_addr),
            "MASTER_PORT": str(group.master_port),
            "TORCHELASTIC_RESTART_COUNT": str(self._generation),
            "TORCHELASTIC_MAX_RESTARTS": str(spec.max_restarts),
            "TORCHELASTIC_RUN_ID": spec.rdzv_handler.get_run_id(),
            "TORCHELASTIC_USE_AGENT_STORE": str(spec.rdzv_handler.use_agent_store),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        }

    def _monitor_workers(self, worker_group: api.WorkerGroup) -> api.RunResult:  # noqa: ARG002 - there is one group.
        members = self._group.members
        has_exit = any(each.code is not None for each in members)
        self._group.collect_exits(0 if has_exit else self._launch.monitor_interval)
        if self._group.has_failure():
            self._group.wait_for_all(_SETTLE, self._group.collect_exits)
            self._group.stop(signal.SIGTERM, self._group.collect_exits)
            self.failures = self.list_ended(failed=True)
            self._report_restart()
            return api.RunResult(state=api.WorkerState.FAILED)
        if self._group.list_running():
            return api.RunResult(state=api.WorkerState.HEALTHY)
        self.failures = []
        values = {int(each.process.env["RANK"]): None for each in members}
        return api.RunResult(state=api.WorkerState.SUCCEEDED, return_values=values)

    def list_ended(self, *, failed: bool) -> list[Failure]:
        """Return how each failed worker ended, or if `failed` is False, how each successful worker ended."""
        ended = [each for each in self._group.members if each.code is not None]
        return [each.read_termination() for each in ended if bool(each.code) is failed]

    def _report_restart(self) -> None:
        if self._remaining_restarts > 0:
            for each in self._group.members:
                if each.code:
                    self._send_event({"event": "failed", "directory": str(each.directory)})
            # If the job has other nodes, this agent does not have the outcome of their ranks.
            well = self.list_ended(failed=False) if self._launch.max_nodes == 1 else []
            first = verdict.analyze_failures(self.failures, well).cause
            left = self._remaining_restarts - 1
            self._send_event({"event": "restart", "why": report.format_failure(first), "left": left})

    # torch 2.4 passes a further argument: whether the workers restart afterwards.
    def _stop_workers(self, worker_group: api.WorkerGroup, **_: object) -> None:  # noqa: ARG002
        self._group.stop(signal.SIGTERM, self._group.collect_exits)

    def _shutdown(
        self, death_sig: signal.Signals = signal.SIGTERM, timeout: float | None = None, **_: object
    ) -> None:
        del timeout  # `ProcessGroup.stop` uses `shutdown_timeout` of the settings instead.
        self._group.stop(death_sig, self._group.collect_exits)
        self.failures = self.list_ended(failed=True)
