"""Check a config together with the other arguments of a task."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from flytekit import PodTemplate, Resources

from flytekitplugins.kfpytorch import pod_template as pods
from flytekitplugins.kfpytorch import quantities, validators
from flytekitplugins.kfpytorch.config import Elastic, PyTorch, Worker
from flytekitplugins.kfpytorch.problems import ConfigError, ConfigProblem, require_valid
from kfpytorch_common.quantity import Quantity


def _check_variable(name: object, value: object) -> list[ConfigProblem]:
    found = validators.find_problems("", validators.read_text, name)
    return found if value is None else found + validators.find_problems("", validators.read_text, value)


_RESOURCES: Final[Mapping[str, validators.Reader]] = {
    "requests": quantities.read_single_resources,
    "limits": quantities.read_single_resources,
    "resources": quantities.read_paired_resources,
}
_ARGUMENTS: Final[Mapping[str, validators.Reader]] = {
    **_RESOURCES,
    # Kubernetes accepts only text. flytekit reports other values only at registration, or not at all.
    "environment": validators.build_mapping_reader(_check_variable, "must be a dict of texts"),
    "pod_template": validators.build_check_reader(
        lambda value: isinstance(value, PodTemplate), "must be a PodTemplate(...)"
    ),
}


def require_valid_task(config: PyTorch | Elastic, arguments: Mapping[str, Any]) -> None:
    """Raise a `ConfigError` if a config or an argument of ``@task`` is invalid, or if they conflict."""
    found = _find_problems(config)
    for name, read in _ARGUMENTS.items():
        if arguments.get(name) is not None:
            found += validators.find_problems(name, read, arguments[name])
    argument = arguments.get("pod_template")
    template = argument if isinstance(argument, PodTemplate) else None
    shared_memory = needs_shared_memory(config, arguments.get("shared_memory"))
    problems: list[ConfigProblem | str] = [*found]
    problems += pods.find_problems(template, shared_memory=shared_memory)
    if {"nproc_per_node", *_RESOURCES}.isdisjoint(problem.path for problem in found):
        problems += _find_ranks_without_gpus(config, _read_amounts(*_split_resources(arguments), template))
    require_valid(type(config).__name__, problems)


def require_valid_config(config: PyTorch | Elastic) -> None:
    """Raise a `ConfigError` if a task cannot use a config. The arguments of ``@task`` are not checked."""
    require_valid(type(config).__name__, _find_problems(config))


def _find_problems(config: PyTorch | Elastic) -> list[ConfigProblem]:
    """Return the problems of the config of a task.

    A `PyTorch` config without a number of workers is valid, but a task cannot use it.
    """
    found = config.problems()
    worker: object = getattr(config, "worker", None)
    if isinstance(config, PyTorch) and isinstance(worker, Worker) and config.workers() is None:
        remedy = "how many workers? Write PyTorch(worker=Worker(replicas=...))"
        found.append(ConfigProblem("worker.replicas", None, remedy))
    return found


def needs_shared_memory(config: PyTorch | Elastic, shared_memory: object) -> bool:
    """True if the config requires shared memory and ``@task(shared_memory=...)`` does not mount it."""
    return bool(config.increase_shared_mem) and shared_memory in (None, False)


def count_processes(task: Any) -> int:
    """Return the number of processes per node of an `Elastic` task: its `nproc_per_node` as a number.

    ``"gpu"`` is the number of GPUs of a replica. ``"cpu"`` is the number of its whole CPUs, at least 1.
    ``"auto"`` is the number of its GPUs, or of its CPUs if it has no GPU. The registered task contains this
    number, so ``with_overrides`` in a workflow cannot change it.

    Raises:
        ConfigError: If the number cannot be derived from the resources of the task.
    """
    processes = task.task_config.nproc_per_node
    if not isinstance(processes, str):
        return int(processes)
    granted = _read_amounts(task.resources.requests, task.resources.limits, task.author_pod)
    gpus, cpus = _count_gpus(granted), granted.get("cpu")
    if processes != "cpu" and gpus:
        return gpus
    if processes != "gpu" and cpus:
        return max(1, cpus.whole)
    remedy = (
        "the task does not request the devices to count; write @task(requests=Resources(gpu='8')), or "
        "@task(limits=Resources(cpu='4')) for cpus, or the number of processes"
    )
    raise ConfigError(type(task.task_config).__name__, [ConfigProblem("nproc_per_node", processes, remedy)])


def _read_amounts(
    requests: Resources, limits: Resources, template: PodTemplate | None
) -> dict[str, Quantity]:
    """Return the amount of each resource of a replica: its limit, or its request if it has no limit.

    Values that are not quantities are left out. The resources of the pod template are used only if the task
    has no resources, because flytekit replaces the resources of the template with those of the task.
    """
    amounts = [*vars(requests).items(), *vars(limits).items()]
    of_task = {name: amount for name, amount in amounts if amount is not None}
    return quantities.parse_amounts(of_task or pods.read_resources(template))


def _count_gpus(granted: Mapping[str, Quantity]) -> int:
    return granted["gpu"].whole if "gpu" in granted else 0


def _split_resources(arguments: Mapping[str, Any]) -> tuple[Resources, Resources]:
    if arguments.get("resources") is not None:
        return quantities.split_resources(arguments["resources"])
    return arguments.get("requests") or Resources(), arguments.get("limits") or Resources()


def _find_ranks_without_gpus(
    config: PyTorch | Elastic, granted: Mapping[str, Quantity]
) -> Iterator[ConfigProblem]:
    if not isinstance(config, Elastic) or isinstance(config.nproc_per_node, str):
        return
    gpus = _count_gpus(granted)
    if 0 < gpus < config.nproc_per_node:
        remedy = (
            f"is more than the {gpus} GPUs of a node, and each rank needs its own; write at most {gpus}, "
            f"or request {config.nproc_per_node} GPUs"
        )
        yield ConfigProblem("nproc_per_node", config.nproc_per_node, remedy)
