"""Run the processes of a job on this machine or in this pod, and return the outcome to Flyte."""

import contextlib
import math
import os
import pickle
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flytekit

from flytekitplugins.kfpytorch.frameworks import get_framework
from flytekitplugins.kfpytorch.worker import (
    jax_processes,
    launch_settings,
    outcome,
    payloads,
    run_files,
    runtime_info,
    topology,
)
from flytekitplugins.kfpytorch.worker.console import Console
from flytekitplugins.kfpytorch.worker.launch_settings import ElasticLaunchConfig
from flytekitplugins.kfpytorch.worker.process_group import ProcessGroup, ProcessSpec
from flytekitplugins.kfpytorch.worker.process_supervisor import ProcessSupervisor, SigtermReceived
from flytekitplugins.kfpytorch.worker.replica import WorkerContext
from kfpytorch_common import operator_env, prestart
from kfpytorch_common.forkserver.child import can_fork
from kfpytorch_common.forkserver.launch import start_forked_server
from kfpytorch_common.frameworks import JAX, TORCH
from kfpytorch_common.loaded_modules import find_loaded
from kfpytorch_common.operator_env import LOOPBACK_ADDRESS

if TYPE_CHECKING:
    from flytekitplugins.kfpytorch.worker.output_slots import OutputSlot
    from kfpytorch_common.forkserver.client import Client

_REPLICA = "flytekitplugins.kfpytorch.worker.replica:main"
_AGENT = "flytekitplugins.kfpytorch.worker.elastic_agent:main"
# Seconds between SIGTERM and SIGKILL. They are few in a local run, because the user waits. In a pod, the
# kubelet waits 30 s before its SIGKILL.
PATIENCE_HERE = 3.0
PATIENCE_IN_POD = 20.0


class NotInCluster(RuntimeError):
    """A task that needs a PyTorchJob or TrainJob runs in a pod that belongs to no such job."""


@dataclass
class LocalRun:
    """A run of a task on this machine or in this pod, with its directories and its console."""

    task: Any
    client: "Client"
    console: Console
    scratch: Path
    workspace: str
    payload: str
    on_this_machine: bool
    """True for a local run, False in a pod."""
    began: float = field(default_factory=time.monotonic)

    @property
    def stop_timeout(self) -> float:
        """The number of seconds between SIGTERM and SIGKILL when the processes are stopped."""
        return PATIENCE_HERE if self.on_this_machine else PATIENCE_IN_POD

    @property
    def framework(self) -> str:
        """The framework of the processes: torch, jax or mpi."""
        return get_framework(self.task.task_config)

    def build_context(self, slot: "OutputSlot", replica: str, directory: Path) -> dict[str, Any]:
        """Return the settings of a worker, as the fields of a `WorkerContext`.

        `slot` is the output slot of the worker, `replica` is its display name, and `directory` is the
        directory for its files.
        """
        place = WorkerContext(
            slot=slot.number,
            replica=replica,
            directory=str(directory),
            workspace=self.workspace,
            payload=self.payload,
            on_this_machine=self.on_this_machine,
            uses_torch=self.framework == TORCH,
            asks_for_input=slot.terminal,
        )
        return asdict(place)

    def build_replica(
        self, name: str, replica: str, env: dict[str, str], *, interactive: bool = False
    ) -> ProcessSpec:
        """Return the settings of a process that will run the user's function, and open its output streams.

        `name` is the label of its output, and `replica` is its display name in messages about failures.
        """
        slot = self.console.open_slot(name, interactive=interactive)
        args = self.build_context(slot, replica, self.scratch / f"slot{slot.number}")
        return ProcessSpec(name=replica, target=_REPLICA, args=args, env=env, streams=slot.ends)

    def build_agent(
        self, name: str, target: str, slots: Sequence["OutputSlot"], env: dict[str, str], **args: object
    ) -> ProcessSpec:
        """Return the settings of a node's agent, which starts the workers, and create the node's directory.

        `name` is the display name of the node in a local run. `target` is the function that the agent runs,
        as ``module:function``, and `args` are further arguments for this function. `slots` are the output
        slots: first the slot of the agent, then those of its workers.
        """
        directory = self.scratch / f"slot{slots[0].number}"
        directory.mkdir(mode=0o700)
        replica = name if self.on_this_machine else runtime_info.format_pod_name()
        places = [
            self.build_context(slot, replica, directory / str(rank)) for rank, slot in enumerate(slots[1:])
        ]
        return ProcessSpec(
            name=replica,
            target=target,
            args={"directory": str(directory), "places": places, **args},
            env=env,
            streams=[fd for slot in slots for fd in slot.ends],
            is_agent=True,
        )

    def print_layout(self, layout: str, fitted: topology.Topology) -> None:
        """Print the layout of a local run, such as ``2 nodes x 4``, its devices, and ignored settings.

        If the layout differs from that of the task, also print `fitted.note`, which describes the difference.
        """
        on_cpu = "CPU, gloo" if self.framework == TORCH else "CPU"
        devices = f"GPU {' | '.join(fitted.devices)}" if fitted.devices else on_cpu
        self.console.print_line(f"{self.task.name}: {layout} on this machine ({devices})")
        if fitted.note:
            self.console.print_line(fitted.note)
        if getattr(self.task.task_config.train_job, "success_policy", None) is not None:
            self.console.print_line(
                "train_job.success_policy has no effect in a local run: all ranks must succeed"
            )

    def finish(self, processes: Sequence[ProcessSpec], ranks: int, *, complete: bool = True) -> Any:
        """Run `processes` until they have ended, and return the value of rank 0.

        In a local run, stop the processes at the timeout of the task.

        Args:
            processes: The processes to start: agents of nodes, or ranks.
            ranks: The number of ranks of `processes`.
            complete: False if the job has ranks in other pods.

        Raises:
            FlyteUserRuntimeException: A rank failed.
            FlyteRecoverableException: A rank raised this exception.
            IgnoreOutputs: Rank 0 runs in another pod.
        """
        limit: Any = self.task.metadata.timeout if self.on_this_machine else None
        deadline = self.began + limit.total_seconds() if limit else math.inf
        collect, timeout = outcome.collect_replicas, self.stop_timeout
        if processes[0].is_agent:
            # An agent stops its workers within `stop_timeout`.
            collect, timeout = outcome.collect_nodes, timeout + 2.0
        group = ProcessGroup(self.client, timeout)
        supervisor = ProcessSupervisor(group, self.console, self.scratch, deadline)
        ended = collect(supervisor.run(processes))
        ended.at_terminal, ended.complete = self.on_this_machine, complete
        if supervisor.timed_out:
            ended.failures = [outcome.build_timeout_failure(limit, ended)]
        elif self.on_this_machine and ended.rank_zero is None and not ended.failures:
            ended.failures = [outcome.build_missing_result_failure(time.time_ns())]
        loaded = outcome.load_result(ended)
        seconds = time.monotonic() - self.began
        if ended.failures:
            raise outcome.build_exception(self.task, self.console, ended, ranks, seconds)
        if self.console.directory is not None:
            logs = f"logs of all ranks in {self.console.directory}"
            self.console.print_line(f"done in {seconds:.1f} s, {logs}")
        return outcome.return_result(loaded)


def run_replicas(task: Any, inputs: dict[str, Any], fitted: topology.Topology) -> Any:
    """Run a task locally, with one process for each node in `fitted`, and return the value of rank 0."""
    with open_run(task, inputs, "spawn") as run, runtime_info.reserve_port() as port:
        run.print_layout(_format_count(fitted.ranks, "replica"), fitted)
        processes = []
        for index in range(fitted.nodes):
            name = operator_env.format_replica_name(index) if run.framework == TORCH else f"process {index}"
            env = {**build_env(fitted, index), **operator_env.build_replica_env(index, fitted.nodes, port)}
            if run.framework == JAX:
                env |= jax_processes.build_env(index, fitted.nodes, env)
            processes.append(run.build_replica(name, name, env, interactive=index == 0))
        return run.finish(processes, fitted.ranks)


def run_nodes(task: Any, inputs: dict[str, Any], fitted: topology.Topology) -> Any:
    """Run an `Elastic` task locally, with an agent for each node, and return the value of rank 0."""
    config = task.task_config
    with open_run(task, inputs, config.start_method) as run, runtime_info.reserve_port() as port:
        run.print_layout(f"{_format_count(fitted.nodes, 'node')} x {fitted.nproc_per_node}", fitted)
        size = (fitted.nodes, fitted.nproc_per_node)
        elastic = operator_env.build_elastic_env(*size, config.max_restarts, port)
        settings = _build_launch_config(run, *size, elastic["PET_RDZV_ENDPOINT"])
        private = _without_network(settings, run.scratch)
        processes = [
            _build_agent(run, index, private, {**build_env(fitted, index), **elastic})
            for index in range(fitted.nodes)
        ]
        return run.finish(processes, fitted.ranks)


def run_node_processes(task: Any, inputs: dict[str, Any]) -> Any:
    """Run the ranks of this pod without torch's launcher, and return the value of rank 0.

    Raises:
        NotInCluster: The environment variable with the number of this node is not set.
        IgnoreOutputs: Rank 0 runs in another pod.
    """
    count, node = int(task.task_config.nproc_per_node), os.environ.get("PET_NODE_RANK")
    if node is None:
        raise NotInCluster(
            f"the number of this node is not set (PET_NODE_RANK), which each pod of a TrainJob has; "
            f"framework={get_framework(task.task_config)!r} needs the kfpytorch backend"
        )
    first, total = int(node) * count, int(os.environ["WORLD_SIZE"])
    with open_run(task, inputs, "spawn", in_pod=True) as run:
        fitted = topology.fit(count, 1, topology.detect_machine(os.environ), count)
        processes = []
        for index in range(count):
            env = {"OMP_NUM_THREADS": "1", **os.environ, "LOCAL_RANK": str(index)}
            env |= {"CUDA_VISIBLE_DEVICES": fitted.devices[index]} if fitted.devices else {}
            env |= jax_processes.build_env(first + index, total, os.environ)
            processes.append(run.build_replica(f"local {index}", runtime_info.format_pod_name(), env))
        return run.finish(processes, count, complete=total == count)


def run_cluster_node(task: Any, inputs: dict[str, Any]) -> Any:
    """Run the elastic agent of this pod, and return the value of rank 0.

    Raises:
        NotInCluster: The task needs several pods, and the operator has not set ``PET_RDZV_ENDPOINT``.
        IgnoreOutputs: Rank 0 runs in another pod.
    """
    config = task.task_config
    endpoint = os.environ.get("PET_RDZV_ENDPOINT")
    if endpoint is None and task.min_nodes > 1:
        raise NotInCluster(
            f"nnodes={config.nnodes!r} needs {task.min_nodes} pods, but their rendezvous endpoint is not set "
            "(PET_RDZV_ENDPOINT, which the training operator sets): is Flyte's pytorch plugin enabled?"
        )
    processes = topology.count_pod_processes(config.nproc_per_node, os.environ)
    with open_run(task, inputs, config.start_method, in_pod=True) as run:
        settings = _build_launch_config(run, task.max_nodes, processes, endpoint or f"{LOOPBACK_ADDRESS}:0")
        env = dict(os.environ)
        if processes > 1:
            env.setdefault("OMP_NUM_THREADS", "1")
        if endpoint is None:
            settings = _without_network(settings, run.scratch)
            env[operator_env.LOOPBACK_ONLY] = "1"
        agent = _build_agent(run, 0, settings, env)
        complete = task.max_nodes == 1
        return run.finish([agent], settings.nproc_per_node, complete=complete)


def _build_launch_config(
    run: LocalRun, nodes: int, nproc_per_node: int, endpoint: str
) -> ElasticLaunchConfig:
    config = run.task.task_config
    settings = ElasticLaunchConfig(
        min_nodes=nodes if run.on_this_machine else run.task.min_nodes,
        max_nodes=nodes,
        nproc_per_node=nproc_per_node,
        run_id=flytekit.current_context().execution_id.name or "local",
        rdzv_endpoint=endpoint,
        rdzv_configs=dict(config.rdzv_configs),
        max_restarts=config.max_restarts,
        monitor_interval=config.monitor_interval,
        start_method=config.start_method,
        shutdown_timeout=run.stop_timeout,
        local_addr=os.environ.get("PET_LOCAL_ADDR"),
    )
    if find_loaded("torch"):
        # If torch is loaded already, let it check the settings, so that this process raises its errors.
        from flytekitplugins.kfpytorch.worker import elastic_agent

        elastic_agent.build_launch_config(settings)
        # Remove the defaults that torch wrote into the dict. A test that patches `LaunchConfig` must receive
        # only the author's values.
        settings.rdzv_configs.clear()
        settings.rdzv_configs.update(config.rdzv_configs)
    return settings


def _without_network(settings: ElasticLaunchConfig, directory: Path) -> ElasticLaunchConfig:
    """Return `settings` with a rendezvous through a file instead of a server, for agents on one machine.

    Only this user can read the file. A server would accept a rendezvous state from every process that can
    connect to it. This would be a risk, because agents unpickle the state.
    """
    return replace(
        settings,
        run_id=secrets.token_hex(16),
        rdzv_endpoint=str(directory / "rendezvous"),
        rdzv_configs={**settings.rdzv_configs, "store_type": "file"},
        local_addr=LOOPBACK_ADDRESS,
        on_one_machine=True,
    )


def _build_agent(
    run: LocalRun, index: int, settings: ElasticLaunchConfig, env: dict[str, str]
) -> ProcessSpec:
    name = f"node {index}"
    first = index * settings.nproc_per_node
    slots = [run.console.open_slot(f"agent {index}")]
    slots += [
        run.console.open_slot(f"{name} local {rank}", interactive=first + rank == 0 and run.on_this_machine)
        for rank in range(settings.nproc_per_node)
    ]
    agent = run.build_agent(name, _AGENT, slots, env)
    Path(agent.args["directory"], launch_settings.FILE_NAME).write_bytes(pickle.dumps(settings))
    return agent


def build_env(fitted: topology.Topology, index: int) -> dict[str, str]:
    """Return the environment variables of the node or replica with the number `index`.

    They are the variables of this process, with defaults for the loopback interface and ``OMP_NUM_THREADS``.
    ``TORCHELASTIC_USE_AGENT_STORE`` is false. ``CUDA_VISIBLE_DEVICES`` is set to the GPUs of the node, if it
    has any.
    """
    # Restrict connections to loopback, because the host name of this machine may resolve to another address.
    env = {**operator_env.build_loopback_env(), **os.environ, **runtime_info.NO_AGENT_STORE}
    if "OMP_NUM_THREADS" not in env:
        env["OMP_NUM_THREADS"] = str(topology.count_processors()) if fitted.ranks == 1 else "1"
    if fitted.devices:
        env["CUDA_VISIBLE_DEVICES"] = fitted.devices[index]
    return env


@contextlib.contextmanager
def open_run(
    task: Any, inputs: dict[str, Any], start_method: str, *, in_pod: bool = False
) -> Iterator[LocalRun]:
    """Create the directories and logs of a run, and connect to a fork server.

    With the `start_method` ``fork``, the server is a fork of this process. If `in_pod` is true, there are no
    logs. Otherwise the logs stay after the run. The directory for flytekit's files stays after a successful
    run if it contains files.
    """
    payload = payloads.build_payload(task, inputs)
    inherits = start_method == "fork" and can_fork()
    packed = b"" if inherits else payloads.encode_task(payload, task)
    with contextlib.ExitStack() as ending:
        if inherits:
            server = start_forked_server((), payload)
            ending.callback(server.stop)
        else:
            server = prestart.get_server()
        client = server.client.connect()
        ending.callback(client.close)
        scratch = ending.enter_context(run_files.create_scratch(client, len(packed)))
        file = scratch / "payload.pkl"
        file.write_bytes(packed)
        workspace = ending.enter_context(run_files.create_workspace(client))
        console = ending.enter_context(_open_console(task, in_pod=in_pod))
        for warning in [] if inherits else payloads.list_warnings(task):
            console.print_line(warning)
        yield LocalRun(task, client, console, scratch, workspace, str(file), not in_pod)


@contextlib.contextmanager
def _open_console(task: Any, *, in_pod: bool) -> Iterator[Console]:
    directory = None if in_pod else run_files.create_log_directory(task.name, Console.print_line)
    console = Console(directory, all_ranks=in_pod or runtime_info.is_verbose(os.environ))
    try:
        yield console
    except SigtermReceived:
        if in_pod:
            why = "stopped by SIGTERM (scale-in, preemption or deletion)"
            console.print_line(f"{why}: no result and no error is written")
        elif directory is not None:
            console.print_line(f"stopped, logs of all ranks in {directory}")
        raise
    finally:
        console.close()


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"
