"""Check a config together with the other arguments of a task, and with the overrides of a workflow."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from flytekit import PodTemplate, Resources
from flytekit.core.context_manager import FlyteContext
from flytekit.core.node import Node
from flytekit.models.task import Resources as ResourcesModel

from flytekitplugins.kfpytorch import pod_template as pods
from flytekitplugins.kfpytorch import quantities, validators
from flytekitplugins.kfpytorch.config import Elastic, PyTorch, Worker
from flytekitplugins.kfpytorch.problems import ConfigError, ConfigProblem, add_prefix, require_valid
from kfpytorch_common.quantity import Quantity

Amounts: TypeAlias = Mapping[str, Quantity]

# The field of flytekit's `Resources` for each `ResourceName` of flyteidl.
_KINDS: Final = {
    ResourcesModel.ResourceName.CPU: "cpu",
    ResourcesModel.ResourceName.MEMORY: "mem",
    ResourcesModel.ResourceName.GPU: "gpu",
    ResourcesModel.ResourceName.EPHEMERAL_STORAGE: "ephemeral_storage",
}


def _check_variable(name: object, value: object) -> list[ConfigProblem]:
    found = validators.find_problems("", validators.read_text, name)
    return found if value is None else found + validators.find_problems("", validators.read_text, value)


_RESOURCES: Final = {
    "requests": quantities.read_single_resources,
    "limits": quantities.read_single_resources,
    "resources": quantities.read_paired_resources,
}
_ARGUMENTS: Final[Mapping[str, validators.Reader]] = {
    **_RESOURCES,
    # Kubernetes rejects a number, and flytekit reports it only at registration, or not at all.
    "environment": validators.build_mapping_reader(_check_variable, "must be a dict of texts"),
}
_GPU_FIELDS: Final = tuple(f"{name}.gpu" for name in _RESOURCES)


def require_valid_task(config: PyTorch | Elastic, arguments: Mapping[str, Any]) -> None:
    """Check a config together with the arguments of ``@task``; raise a `ConfigError` with all problems."""
    found = [*config.problems(), *_find_missing_workers(config)]
    unread = [
        problem
        for name, read in _ARGUMENTS.items()
        if arguments.get(name) is not None
        for problem in validators.find_problems(name, read, arguments[name])
    ]
    template = arguments.get("pod_template")
    shared_memory = needs_shared_memory(config, arguments.get("shared_memory"))
    problems: list[ConfigProblem | str] = [*found, *unread]
    problems += pods.find_problems(template, shared_memory=shared_memory)
    if not _touches(found, "nproc_per_node") and not _touches(unread, *_RESOURCES, *_GPU_FIELDS):
        granted = read_amounts(*_split_resources(arguments), template)
        problems += _find_ranks_without_gpus(config, granted)
    require_valid(type(config).__name__, problems)


def _touches(problems: Iterable[ConfigProblem], *paths: str) -> bool:
    return any(problem.path in paths for problem in problems)


def require_valid_config(config: PyTorch | Elastic) -> None:
    """Check a config that replaces that of an existing task; raise a `ConfigError` with all problems."""
    require_valid(type(config).__name__, [*config.problems(), *_find_missing_workers(config)])


def needs_shared_memory(config: PyTorch | Elastic, shared_memory: object) -> bool:
    """True if the config requires shared memory and ``@task(shared_memory=...)`` does not mount it."""
    return bool(config.increase_shared_mem) and shared_memory in (None, False)


class CheckedNode(Node):  # type: ignore[misc]
    """A node of a workflow that checks its overrides against the config of its task."""

    def with_overrides(self, *args: Any, **kwargs: Any) -> Any:
        """Override settings of the task for this node of a workflow.

        Raises:
            ConfigError: If a value is invalid, if there are more processes than GPUs, or if the number of
                processes changes. The error lists all problems.
        """
        node = super().with_overrides(*args, **kwargs)
        task = self.run_entity
        granted = _get_amounts(task, self)
        found = [
            problem
            for field, name, value in _iter_overrides(self)
            for problem in add_prefix(field, quantities.find_problems(name, value))
        ]
        if not found:
            found += _find_changed_count(task, granted)
        if not _touches(found, *_GPU_FIELDS):
            found += _find_ranks_without_gpus(task.task_config, granted)
        require_valid(type(task.task_config).__name__, add_prefix("with_overrides", found))
        return node


def enable_override_checks(task: object, context: FlyteContext) -> None:
    """Make ``with_overrides`` of the last node that `context` has compiled raise errors for invalid values.

    Do nothing if this node is not a call of `task`.
    """
    nodes = context.compilation_state.nodes if context.compilation_state is not None else []
    if nodes and nodes[-1].flyte_entity is task and type(nodes[-1]) is Node:
        nodes[-1].__class__ = CheckedNode


def count_processes(task: Any) -> int:
    """Return the number of processes per node of an `Elastic` task: its `nproc_per_node` as a number.

    ``"gpu"`` and ``"cpu"`` count the GPUs or CPUs of a replica; ``"auto"`` counts its GPUs, or without GPUs
    its CPUs. The registered task contains the number, so overrides in a workflow cannot change it.

    Raises:
        ConfigError: If the number cannot be derived from the resources of the task.
    """
    asked = task.task_config.nproc_per_node
    if not isinstance(asked, str):
        return int(asked)
    if count := _compute_processes(asked, _get_amounts(task, None)):
        return count
    problem = ConfigProblem("nproc_per_node", asked, _UNKNOWN_COUNTS[asked])
    raise ConfigError(type(task.task_config).__name__, [problem])


def _find_changed_count(task: Any, granted: Amounts) -> Iterator[ConfigProblem]:
    """Yield a problem if overrides change the number of processes, which is fixed at registration.

    `granted` has the resources of a replica with the overrides.
    """
    requested = getattr(task.task_config, "nproc_per_node", None)
    if not isinstance(requested, str) or task.task_config.is_standalone():
        return
    of_task = _compute_processes(requested, _get_amounts(task, None))
    of_node = _compute_processes(requested, granted)
    if of_task != of_node:
        remedy = (
            f"is {of_task or 'unknown'} for the resources of the task and {of_node} for these, and a "
            "task has one number for all its nodes; write the number, or define a separate task"
        )
        yield ConfigProblem("nproc_per_node", requested, remedy)


_GPU_REMEDY: Final = "request GPUs, such as @task(requests=Resources(gpu='8'))"
_CPU_REMEDY: Final = "limit cpus, such as @task(limits=Resources(cpu='4'))"
_UNKNOWN_COUNTS: Final = {
    "gpu": f"the task requests no GPU, so their number is not known; {_GPU_REMEDY}, or write the number",
    "cpu": f"the task requests no cpu, so their number is not known; {_CPU_REMEDY}, or write the number",
    "auto": "the task requests neither GPU nor cpu, so their number is not known; "
    f"{_GPU_REMEDY}, {_CPU_REMEDY}, or write the number",
}


def _compute_processes(word: str, granted: Amounts) -> int:
    """Return the number of GPUs for "gpu", or of whole CPUs (at least 1) for "cpu".

    For "auto", count the GPUs, or without GPUs the CPUs. `granted` has the resources of a replica; the result
    is 0 if they lack what is counted.
    """
    gpus, cpus = granted.get("gpu"), granted.get("cpu")
    if word == "gpu" or (word == "auto" and gpus):
        return gpus.whole if gpus else 0
    return max(1, cpus.whole) if cpus else 0


def read_amounts(requests: Resources, limits: Resources, template: PodTemplate | None) -> dict[str, Quantity]:
    """Return the amount of each resource of a replica: its limit, or its request if it has no limit.

    Values that are not quantities are left out. The resources of the pod template are read only if the task
    has none, because flytekit replaces them by those of the task.
    """
    stated = {**_list_resources(requests), **_list_resources(limits)} or pods.read_resources(template)
    return {
        name: quantities.parse_quantity(value)
        for name, value in stated.items()
        if quantities.is_quantity(value)
    }


def _list_resources(resources: Resources) -> dict[str, object]:
    values = {name: getattr(resources, name) for name in quantities.RESOURCE_FIELDS}
    return {name: value for name, value in values.items() if value is not None}


def _get_amounts(task: Any, node: Node | None) -> Amounts:
    amounts = read_amounts(task.resources.requests, task.resources.limits, task.author_pod)
    for _, name, value in _iter_overrides(node):
        if quantities.is_quantity(value):
            amounts[name] = quantities.parse_quantity(value)
    return amounts


def _iter_overrides(node: Node | None) -> Iterator[tuple[str, str, str]]:
    """Yield a tuple for each resource that a node overrides: ``requests`` or ``limits``, resource, value.

    The requests come first, so that a caller that writes the values into a dict by resource keeps the limits.
    """
    model = None if node is None else node._resources  # noqa: SLF001 - flytekit offers no public one.
    if model is not None:
        for field, entries in (("requests", model.requests), ("limits", model.limits)):
            yield from ((field, _KINDS[each.name], each.value) for each in entries if each.name in _KINDS)


def _find_missing_workers(config: PyTorch | Elastic) -> Iterator[ConfigProblem]:
    """Yield a problem if the number of workers is missing. A config may omit it, but a task may not."""
    worker: object = getattr(config, "worker", None)
    if isinstance(config, PyTorch) and isinstance(worker, Worker) and config.workers() is None:
        remedy = "how many workers? Write PyTorch(worker=Worker(replicas=...))"
        yield ConfigProblem("worker.replicas", None, remedy)


def _split_resources(arguments: Mapping[str, Any]) -> tuple[Resources, Resources]:
    if arguments.get("resources") is not None:
        return quantities.split_resources(arguments["resources"])
    return arguments.get("requests") or Resources(), arguments.get("limits") or Resources()


def _find_ranks_without_gpus(config: PyTorch | Elastic, granted: Amounts) -> Iterator[ConfigProblem]:
    if not isinstance(config, Elastic) or isinstance(config.nproc_per_node, str):
        return
    gpus = granted["gpu"].whole if "gpu" in granted else 0
    if 0 < gpus < config.nproc_per_node:
        remedy = (
            f"is more than the {gpus} GPU{'s' if gpus > 1 else ''} of a node, and each rank needs "
            f"its own; write at most {gpus}, or request {config.nproc_per_node} GPUs"
        )
        yield ConfigProblem("nproc_per_node", config.nproc_per_node, remedy)
