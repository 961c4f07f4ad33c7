"""Call the function of a task in this process: as the only rank of a local run, or as a replica in a pod."""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from flytekit.exceptions.user import FlyteRecoverableException
from flytekit.extend import IgnoreOutputs

from flytekitplugins.kfpytorch.frameworks import get_framework
from flytekitplugins.kfpytorch.worker import jax_processes, runtime_info, topology, torch_adaptations
from kfpytorch_common import operator_env
from kfpytorch_common.caught import Caught, catch
from kfpytorch_common.frameworks import JAX, TORCH

_reported: set[str] = set()


def report_world_of_one(task: str, ranks: int) -> None:
    """Print that a task with several `ranks` runs as a single rank, once for each task.

    Print nothing if ``FLYTE_KFPYTORCH_LOCAL`` or ``RANK`` is set.
    """
    is_set = os.environ.get(topology.OVERRIDE, "").strip() or "RANK" in os.environ
    if ranks == 1 or is_set or task in _reported:
        return
    _reported.add(task)
    text = (
        f"kfpytorch  {task}: runs in this process with a world size of 1; to start all {ranks} ranks, "
        f"use pyflyte run or set {topology.OVERRIDE}=replicas"
    )
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def run_inline(task: Any, inputs: dict[str, Any]) -> Any:
    """Call the user's function in this process as the only rank, and return the value.

    During the call, the environment variables for a world size of 1 are set.
    """
    with runtime_info.reserve_port() as port:
        here = operator_env.build_loopback_env().items()
        defaults = {name: value for name, value in here if name not in os.environ}
        env = {**defaults, **operator_env.build_single_process_env(port), **runtime_info.NO_AGENT_STORE}
        if get_framework(task.task_config) == JAX:
            env |= jax_processes.build_env(0, 1, env)
        with set_environment(env):
            return _call_function(task, inputs)


def _call_function(task: Any, inputs: dict[str, Any]) -> Any:
    if get_framework(task.task_config) != TORCH or importlib.util.find_spec("torch") is None:
        return task.task_function(**inputs)
    with torch_adaptations.keep_stores_on_loopback(), torch_adaptations.replace_nccl():
        return task.task_function(**inputs)


def run_in_pod(task: Any, inputs: dict[str, Any]) -> Any:
    """Call the user's function in this pod, which is one replica of the job, and return the value.

    Raises:
        IgnoreOutputs: On every rank except 0.
    """
    rank = os.environ.get("RANK", "0")
    is_torch = get_framework(task.task_config) == TORCH
    if not is_torch:
        os.environ.update(jax_processes.build_bind_address(os.environ))
    with torch_adaptations.keep_stores_on_loopback() if is_torch else contextlib.nullcontext():
        value = catch(lambda: task.task_function(**inputs))
    if isinstance(value, Caught):
        if not isinstance(value.error, IgnoreOutputs):
            _add_replica_note(value.error, rank)
            if not is_torch:
                jax_processes.exit_without_peers(1)
        raise value.error
    if rank != "0":
        # All replicas would write to the same prefix, and the last one would overwrite the others.
        raise IgnoreOutputs
    return value


def _add_replica_note(error: BaseException, rank: str) -> None:
    note = f"raised on rank {rank} ({runtime_info.format_pod_name()}) of the job"
    with contextlib.suppress(Exception):  # Some classes do not accept a note, such as frozen dataclasses.
        if sys.version_info >= (3, 11):
            error.add_note(note)
        elif not isinstance(error, FlyteRecoverableException) and len(error.args) == 1:
            error.args = (f"{error.args[0]} [{note}]",)


@contextlib.contextmanager
def set_environment(added: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while the context is active, then restore their previous values."""
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
