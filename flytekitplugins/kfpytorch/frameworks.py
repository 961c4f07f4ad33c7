"""Check the framework of a TrainJob, and find options that the framework does not support."""

from collections.abc import Iterator, Set
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Final

from flytekitplugins.kfpytorch.problems import ConfigProblem
from kfpytorch_common.frameworks import MPI, TORCH

if TYPE_CHECKING:
    from flytekitplugins.kfpytorch.config import Elastic, PyTorch
    from flytekitplugins.kfpytorch.extension import TrainJob

_OF_TORCH: Final = frozenset({"start_method", "monitor_interval", "max_restarts", "rdzv_configs"})
_NOT_OF_MPI: Final = ("topology", "success_policy", "runtime")


class FrameworkNotInstalled(ImportError):
    """The framework of a task is not installed."""


def get_framework(config: "PyTorch | Elastic") -> str:
    """Return the framework of a task: ``"torch"``, ``"jax"`` or ``"mpi"``."""
    return TORCH if config.train_job is None else config.train_job.framework


def check_elastic(config: "Elastic", sound: Set[str]) -> Iterator[ConfigProblem]:
    """Yield a problem for each setting of an `Elastic` config that its framework does not support.

    `sound` contains the names of the fields with valid values. Other fields are not checked.
    """
    framework = get_framework(config)
    if framework == TORCH:
        return
    for each in fields(config):
        value = getattr(config, each.name)
        default = each.default if each.default_factory is MISSING else each.default_factory()
        if each.name in _OF_TORCH & sound and value != default:
            remedy = f"is a setting of torch's elastic launcher, not of {framework}; leave it out"
            yield ConfigProblem(each.name, value, remedy)
    if "nproc_per_node" in sound and isinstance(config.nproc_per_node, str):
        remedy = f"is a word of torchrun, and the framework is {framework}; write the number"
        yield ConfigProblem("nproc_per_node", config.nproc_per_node, remedy)
    if "nnodes" in sound:
        yield from _check_nodes(config, framework)
        yield from check_launcher(config.train_job, "nnodes", config.nnodes, config.min_max_nodes()[1])


def check_launcher(
    train_job: "TrainJob | None", field: str, value: object, nodes: int
) -> Iterator[ConfigProblem]:
    """Yield a problem for each setting that conflicts with the launcher of an MPI job, such as a topology.

    A job with a single node is a problem, too. `field` and `value` are the name and the value of the setting
    that determines the number of nodes, `nodes`. For jobs of other frameworks, yield nothing.
    """
    if train_job is None or train_job.framework != MPI:
        return
    if nodes < 2:
        remedy = "leaves the launcher of mpirun without another node; use at least 2 nodes"
        yield ConfigProblem(field, value, remedy)
    for name in _NOT_OF_MPI:
        if (option := getattr(train_job, name)) is not None:
            remedy = "cannot be combined with mpirun, whose launcher is a Job of its own; leave it out"
            yield ConfigProblem(f"train_job.{name}", option, remedy)


def _check_nodes(config: "Elastic", framework: str) -> Iterator[ConfigProblem]:
    low, high = config.min_max_nodes()
    if low < high:
        remedy = f"is a range, and only torch has elastic jobs, not {framework}; write the number"
        yield ConfigProblem("nnodes", config.nnodes, remedy)
    elif config.is_standalone() and framework != MPI:
        remedy = f"is an ordinary pod, not a TrainJob of {framework}; write nnodes='1', or more nodes"
        yield ConfigProblem("nnodes", config.nnodes, remedy)
