"""Run a task and return the result of rank 0, or raise a Flyte exception."""

import contextlib
import importlib.util
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from flytekitplugins.kfpytorch.frameworks import FrameworkNotInstalled, get_framework
from flytekitplugins.kfpytorch.worker import (
    TORCH_IMPORT_ERROR_MESSAGE,
    inline_run,
    jax_processes,
    loading,
    local_requirements,
    outcome,
    payloads,
    runtime_info,
    topology,
)
from kfpytorch_common.forkserver.client import ForkServerGone
from kfpytorch_common.frameworks import JAX, MPI, TORCH

if TYPE_CHECKING:
    from flytekitplugins.kfpytorch.task import PytorchElasticFunctionTask, PyTorchFunctionTask


def run_pytorch(task: "PyTorchFunctionTask", inputs: dict[str, Any]) -> Any:
    """Run a `PyTorch` task, and return the value of rank 0.

    In a pod, the function runs in this process, or for MPI in a process that mpirun starts. Under
    `pyflyte run`, each replica is a process on this machine. A direct call of the task in Python runs the
    function in this process with a world size of 1. ``FLYTE_KFPYTORCH_LOCAL`` overrides the mode of a local
    run.

    Raises:
        IgnoreOutputs: In a pod, on every rank except 0.
        FlyteUserRuntimeException: A replica failed.
        FlyteRecoverableException: A replica raised this exception.
    """
    loading.require_not_importing(task.name)
    with _report_start_errors(task):
        ranks = 1 + (task.task_config.workers() or 0)
        return _run_processes(task, inputs, ranks, replicas_by_default=runtime_info.is_under_pyflyte_run())


def run_elastic(task: "PytorchElasticFunctionTask", inputs: dict[str, Any]) -> Any:
    """Run an `Elastic` task, and return the value of rank 0.

    A local run runs all nodes of the task, and a pod runs its own node.

    Raises:
        IgnoreOutputs: In a cluster, on every node that does not run rank 0.
        FlyteUserRuntimeException: A rank failed.
        FlyteRecoverableException: A rank raised this exception.
        ImportError: The framework of the task is not installed.
    """
    loading.require_not_importing(task.name)
    with _report_start_errors(task):
        if get_framework(task.task_config) != TORCH:
            ranks = task.max_nodes * int(task.task_config.nproc_per_node)
            return _run_processes(task, inputs, ranks, replicas_by_default=True)
        _require_framework(task)
        from flytekitplugins.kfpytorch.worker import local_run

        if not runtime_info.is_local() or _is_node_of_job(os.environ):
            return local_run.run_cluster_node(task, inputs)
        with _prepare_local_run(task, replicas_by_default=True) as chosen:
            if chosen.inline:
                return inline_run.run_inline(task, inputs)
            size = (task.min_nodes, task.task_config.nproc_per_node)
            return local_run.run_nodes(task, inputs, _fit_topology(task, size, chosen))


def _is_node_of_job(env: Mapping[str, str]) -> bool:
    """True if this process has to join the rendezvous in `env` as a node of an elastic job.

    Return False in a rank, whose `env` also contains the rendezvous of its job. A task that a rank calls does
    not join this job, and runs as a separate local run.
    """
    return "PET_RDZV_ENDPOINT" in env and "TORCHELASTIC_RUN_ID" not in env


def _run_processes(task: Any, inputs: dict[str, Any], ranks: int, *, replicas_by_default: bool) -> Any:
    """Run a task without torch's launcher, and return the value of rank 0.

    A pod runs its own ranks. A local run starts up to `ranks` processes, or calls the function in the current
    process if ``FLYTE_KFPYTORCH_LOCAL`` is ``inline``, or if this variable is not set and
    `replicas_by_default` is False.
    """
    is_mpi = get_framework(task.task_config) == MPI
    in_pod = not runtime_info.is_local()
    if in_pod and not is_mpi and getattr(task.task_config, "nproc_per_node", 1) == 1:
        return inline_run.run_in_pod(task, inputs)
    if in_pod:
        from flytekitplugins.kfpytorch.worker import local_run, mpi_run

        return mpi_run.run_in_pod(task, inputs) if is_mpi else local_run.run_node_processes(task, inputs)
    with _prepare_local_run(task, replicas_by_default=replicas_by_default) as chosen:
        if chosen.inline:
            inline_run.report_world_of_one(task.name, ranks)
            return inline_run.run_inline(task, inputs)
        from flytekitplugins.kfpytorch.worker import local_run, mpi_run

        _require_framework(task)
        start = mpi_run.run_here if is_mpi else local_run.run_replicas
        return start(task, inputs, _fit_topology(task, (ranks, 1), chosen))


@contextlib.contextmanager
def _prepare_local_run(task: Any, *, replicas_by_default: bool) -> Iterator[runtime_info.LocalMode]:
    local_requirements.require_packages(task.task_config)
    chosen = runtime_info.read_local_mode(os.environ, replicas_by_default=replicas_by_default)
    with inline_run.set_environment(local_requirements.load_sources(task.task_config)):
        yield chosen


@contextlib.contextmanager
def _report_start_errors(task: Any) -> Iterator[None]:
    try:
        yield
    except (
        runtime_info.InvalidLocalMode,
        local_requirements.PackagesNotInstalled,
        topology.NoGpu,
        payloads.NotPicklable,
        ForkServerGone,
        local_requirements.DataNotLoaded,
        FrameworkNotInstalled,
    ) as error:
        raise outcome.build_start_error(task, error) from None


def _fit_topology(
    task: Any, requested: tuple[int, int | str], chosen: runtime_info.LocalMode
) -> topology.Topology:
    here = topology.detect_machine(os.environ)
    nodes, processes = requested
    size = (nodes, topology.count_processes(processes, nodes, here, chosen.ranks))
    words = _list_texts(task.task_function)
    if "gloo" in words and "nccl" not in words:
        # Ranks that communicate over gloo may share a GPU; nccl requires one GPU for each rank.
        return topology.fit(*size, here, chosen.ranks or replace(here, gpus=()).compute_max_ranks())
    return topology.fit(*size, here, chosen.ranks)


def _list_texts(function: Any) -> set[str]:
    """Return the string constants in the code of a function and of the functions defined in it."""
    codes = [each for code in loading.list_codes(function) for each in loading.iter_codes(code)]
    return {text for code in codes for text in code.co_consts if isinstance(text, str)}


_NOT_INSTALLED: Final = {TORCH: TORCH_IMPORT_ERROR_MESSAGE, JAX: jax_processes.IMPORT_ERROR_MESSAGE}


def _require_framework(task: Any) -> None:
    framework = get_framework(task.task_config)
    if framework == MPI:
        from flytekitplugins.kfpytorch.worker import mpi_run

        mpi_run.require_open_mpi()
    elif importlib.util.find_spec(framework) is None:
        raise FrameworkNotInstalled(_NOT_INSTALLED[framework])
