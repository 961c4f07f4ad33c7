"""Lay out and run the processes of a job on this machine, and return the outcome to Flyte."""

import contextlib
import os
import pickle
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flytekitplugins.kfpytorch.worker import (
    aftermath,
    logs,
    machine,
    mode,
    pod_processes,
    result,
    servers,
    shipping,
    surroundings,
)
from flytekitplugins.kfpytorch.worker.console import Console
from flytekitplugins.kfpytorch.worker.group import Group, Terminated
from flytekitplugins.kfpytorch.worker.replica import Place
from flytekitplugins.kfpytorch.worker.settings import Launch, Process
from kfpytorch_common import environment
from kfpytorch_common.forkserver.child import can_fork
from kfpytorch_common.loaded_modules import get_loaded

if TYPE_CHECKING:
    from flytekitplugins.kfpytorch.worker.group import Member
    from flytekitplugins.kfpytorch.worker.topology import Topology
    from kfpytorch_common.forkserver.client import Client

_REPLICA = "flytekitplugins.kfpytorch.worker.replica:main"
_AGENT = "flytekitplugins.kfpytorch.worker.agent:main"
_HOME = "127.0.0.1"
# Seconds between SIGTERM and SIGKILL. In a local run the user waits; in a pod the kubelet waits 30 s
# in total.
_PATIENCE_HERE = 3.0
_PATIENCE_IN_POD = 20.0


class NotInCluster(RuntimeError):
    """A task of several nodes runs in a pod without the address of the rendezvous."""


@dataclass
class Run:
    """A run of a task, with its directories and its console."""

    task: Any
    console: Console
    scratch: Path
    workspace: str
    payload: str | None
    on_this_machine: bool
    ends: dict[int, list[int]] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def slot(self, label: str, *, interactive: bool = False) -> int:
        """Open the streams for one more process, and return the number of its slot."""
        slot, ends = self.console.open(label, interactive=interactive)
        self.ends[slot.number] = ends
        return slot.number

    def place(self, slot: int, replica: str) -> dict[str, Any]:
        """Return the settings of the worker in `slot`."""
        place = Place(
            slot=slot,
            replica=replica,
            directory=str(self.scratch / f"slot{slot}"),
            workspace=self.workspace,
            payload=self.payload,
            on_this_machine=self.on_this_machine,
            asks_for_input=self.console.slots[slot].terminal,
        )
        return asdict(place)


def replicas(task: Any, inputs: dict[str, Any], fitted: "Topology") -> Any:
    """Run a `PyTorch` task locally, with a process for the master and for each worker."""
    with _run(task, inputs, "spawn") as (run, client), surroundings.reserved_port() as port:
        run.console.say(f"{task.name}: {_layout(fitted.ranks, 'replica')}{_devices(fitted)}")
        _note(run, fitted)
        master = environment.Rendezvous(address=_HOME, port=port)
        processes = []
        for index in range(fitted.nodes):
            name = environment.replica_name(index)
            slot = run.slot(name, interactive=index == 0)
            env = {**_shared_env(fitted, index), **environment.replica(index, fitted.nodes, master)}
            place = run.place(slot, name)
            processes.append(
                Process(
                    name=name, target=_REPLICA, args=place, env=env, slots=(slot,), patience=_PATIENCE_HERE
                )
            )
        ended = _supervise(run, client, processes, aftermath.of_replicas)
        return _outcome(run, ended, fitted.ranks)


def nodes(task: Any, inputs: dict[str, Any], fitted: "Topology") -> Any:
    """Run an `Elastic` task locally, with an agent for each node and a rendezvous between them."""
    config = task.task_config
    with _run(task, inputs, config.start_method) as (run, client), surroundings.reserved_port() as port:
        run.console.say(
            f"{task.name}: {_layout(fitted.nodes, 'node')} x {fitted.nproc_per_node}{_devices(fitted)}"
        )
        _note(run, fitted)
        endpoint = environment.Rendezvous(address=_HOME, port=port)
        settings = _settings(task, fitted.nodes, fitted.nproc_per_node, f"{_HOME}:{port}")
        private = _without_network(settings, run.scratch)
        processes = []
        for index in range(fitted.nodes):
            env = {
                **_shared_env(fitted, index),
                **environment.elastic(fitted.nodes, fitted.nproc_per_node, config.max_restarts, endpoint),
            }
            processes.append(_agent(run, index, private, env))
        ended = _supervise(run, client, processes, aftermath.of_nodes)
        return _outcome(run, ended, fitted.ranks)


def _supervise(
    run: Run,
    client: "Client",
    processes: Sequence[Process],
    read: Callable[[Sequence["Member"]], aftermath.Ended],
) -> aftermath.Ended:
    """Run the processes of a local run until they end, or until the timeout of the task."""
    limit = run.task.metadata.timeout
    deadline = run.began + limit.total_seconds() if limit else None
    group = Group(client, run.console, deadline=deadline, directory=run.scratch)
    ended = read(group.run(processes, run.ends))
    if group.timed_out:
        ended.failures = [aftermath.timeout(limit, ended.failures)]
    return ended


def node_of_cluster(task: Any, inputs: dict[str, Any]) -> Any:
    """Run the agent of this pod; the environment from the operator contains the rendezvous endpoint."""
    config = task.task_config
    endpoint = os.environ.get("PET_RDZV_ENDPOINT")
    if endpoint is None and task.min_nodes > 1:
        raise NotInCluster(
            f"nnodes={config.nnodes!r} needs {task.min_nodes} pods, but their rendezvous endpoint is not set "
            "(PET_RDZV_ENDPOINT, which the training operator sets): is Flyte's pytorch plugin enabled?"
        )
    processes = pod_processes.count(config.nproc_per_node, os.environ)
    with _run(task, inputs, config.start_method, in_pod=True) as (run, client):
        settings = _settings(task, task.max_nodes, processes, endpoint or f"{_HOME}:0")
        env = dict(os.environ)
        if processes > 1:
            env.setdefault("OMP_NUM_THREADS", "1")
        if endpoint is None:
            settings = _without_network(settings, run.scratch)
            env[environment.LOOPBACK_ONLY] = "1"
        agent = _agent(run, 0, settings, env)
        try:
            members = Group(client, run.console, directory=run.scratch).run([agent], run.ends)
        except Terminated:
            run.console.say(
                "stopped by SIGTERM (scale-in, preemption or deletion): no result and no error is written"
            )
            raise
        ended = aftermath.of_nodes(members)
        ended.at_terminal, ended.complete = False, task.max_nodes == 1
        return _outcome(run, ended, settings.nproc_per_node)


def _settings(task: Any, nodes: int, nproc_per_node: int, endpoint: str) -> Launch:
    config = task.task_config
    import flytekit

    in_cluster = not surroundings.is_local()
    settings = Launch(
        min_nodes=task.min_nodes if in_cluster else nodes,
        max_nodes=nodes,
        nproc_per_node=nproc_per_node,
        run_id=flytekit.current_context().execution_id.name or "local",
        rdzv_endpoint=endpoint,
        rdzv_configs=config.rdzv_configs,
        max_restarts=config.max_restarts,
        monitor_interval=config.monitor_interval,
        start_method=config.start_method,
        shutdown_timeout=_PATIENCE_IN_POD if in_cluster else _PATIENCE_HERE,
        local_addr=os.environ.get("PET_LOCAL_ADDR"),
        kills_idle=not in_cluster,
    )
    if get_loaded("torch"):
        # torch is loaded already, and its validation errors are raised in this process.
        from flytekitplugins.kfpytorch.worker import agent

        said = dict(config.rdzv_configs)
        agent.launch_config(settings)
        _restore(config.rdzv_configs, said)  # torch writes its defaults into the author's dict.
    return Launch(**{**vars(settings), "rdzv_configs": dict(config.rdzv_configs)})


def _without_network(settings: Launch, directory: Path) -> Launch:
    """Return `settings` with a rendezvous in a file that only this user can read, for agents on one machine.

    Agents unpickle the state of their rendezvous. A server for it would accept a state from every process
    that can connect.
    """
    return replace(
        settings,
        run_id=secrets.token_hex(16),
        rdzv_endpoint=str(directory / "rendezvous"),
        rdzv_configs={**settings.rdzv_configs, "store_type": "file"},
        local_addr=_HOME,
        on_one_machine=True,
    )


def _restore(changed: dict[str, Any], original: dict[str, Any]) -> None:
    changed.clear()
    changed.update(original)


def _agent(run: Run, index: int, settings: Launch, env: dict[str, str]) -> Process:
    name = f"node {index}"
    first = index * settings.nproc_per_node
    slots = [run.slot(f"agent {index}")]
    slots += [
        run.slot(f"{name} local {rank}", interactive=first + rank == 0 and run.on_this_machine)
        for rank in range(settings.nproc_per_node)
    ]
    directory = run.scratch / f"node{index}"
    directory.mkdir()
    (directory / "settings.pkl").write_bytes(pickle.dumps(settings))
    replica = name if run.on_this_machine else surroundings.pod_name()
    args = {
        "index": index,
        "directory": str(directory),
        "settings": str(directory / "settings.pkl"),
        "places": [run.place(slot, replica) for slot in slots[1:]],
        "env": {},
    }
    patience = settings.shutdown_timeout + 2.0  # The agent stops its workers within shutdown_timeout.
    return Process(
        name=name, target=_AGENT, args=args, env=env, slots=tuple(slots), is_agent=True, patience=patience
    )


def _shared_env(fitted: "Topology", index: int) -> dict[str, str]:
    """Return the environment of node or replica `index` on this machine, with its share of the devices."""
    # Restrict connections to this machine, because its host name may resolve to another address.
    env = {**environment.on_one_machine(), **os.environ}
    if "OMP_NUM_THREADS" not in env:
        alone = fitted.ranks == 1
        env["OMP_NUM_THREADS"] = str(machine.processors()) if alone else "1"
    if fitted.devices:
        env["CUDA_VISIBLE_DEVICES"] = fitted.devices[index]
    return env


@contextlib.contextmanager
def _run(
    task: Any, inputs: dict[str, Any], start_method: str, *, in_pod: bool = False
) -> Iterator[tuple[Run, "Client"]]:
    """Create directories, logs and a fork server for a run; all except the logs are removed after it."""
    payload = shipping.payload_of(task, inputs)
    inherits = start_method == "fork" and can_fork()
    packed = None if inherits else shipping.pack_parcel(payload, task)
    with contextlib.ExitStack() as ending:
        if packed is None:
            server = servers.of_this_process(payload)
            ending.callback(server.stop)
        else:
            server = servers.shared()
        client = server.client.connect()
        ending.callback(client.close)
        scratch = ending.enter_context(logs.scratch(client, len(packed or b"")))
        file = scratch / "payload.pkl"
        file.write_bytes(packed or b"")
        workspace = ending.enter_context(logs.workspace(client))
        directory = None if in_pod else logs.directory(task.name, Console.say)
        console = Console(directory, all_ranks=in_pod or mode.verbose(os.environ))
        ending.callback(console.close)
        ending.enter_context(_stop_told(console))
        for describe in (shipping.describe_changed_globals, shipping.describe_lost_calls) if packed else ():
            if warning := describe(task):
                console.say(warning)
        yield Run(task, console, scratch, workspace, str(file) if packed else None, not in_pod), client


@contextlib.contextmanager
def _stop_told(console: Console) -> Iterator[None]:
    try:
        yield
    except Terminated:
        if console.directory is not None:
            console.say(f"stopped, logs of all ranks in {console.directory}")
        raise


def _outcome(run: Run, ended: aftermath.Ended, ranks: int) -> Any:
    seconds = time.monotonic() - run.began
    if run.on_this_machine and ended.rank_zero is None and not ended.failures:
        ended.failures.append(aftermath.no_result(time.time_ns()))
    if ended.failures:
        raise aftermath.exception(run.task, run.console, ended, ranks, seconds)
    if run.console.directory is not None:
        run.console.say(f"done in {seconds:.1f} s, logs of all ranks in {run.console.directory}")
    return aftermath.handed_over(result.load(ended.rank_zero) if ended.rank_zero else None)


def _layout(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"


def _devices(fitted: "Topology") -> str:
    return f" on this machine ({'GPU ' + ' | '.join(fitted.devices) if fitted.devices else 'CPU, gloo'})"


def _note(run: Run, fitted: "Topology") -> None:
    if fitted.note:
        run.console.say(fitted.note)
