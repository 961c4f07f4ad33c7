"""The configs `Gang` and `TrainJob`, which only the kfpytorch backend reads, and checks of their values."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Annotated, Final

from flytekitplugins.kfpytorch import data_sources, validators
from flytekitplugins.kfpytorch.config_base import ConfigPart, build_config_reader
from flytekitplugins.kfpytorch.data_sources import Dataset, Model, Storage
from flytekitplugins.kfpytorch.problems import ConfigProblem, build_invalid_value
from flytekitplugins.kfpytorch.train_job_policies import (
    PodFailurePolicyRule,
    SuccessPolicy,
    Topology,
    read_pod_failure_policy,
)
from kfpytorch_common.completion_indexes import parse_indexes
from kfpytorch_common.frameworks import FRAMEWORKS, TORCH

_RUNTIME_KINDS: Final = ("ClusterTrainingRuntime", "TrainingRuntime")


@dataclass(kw_only=True)
class Gang(ConfigPart):
    """Options for starting all replicas of a job together, through the gang scheduler of the platform.

    The backend rejects a task with an option that the scheduler does not support. On a platform without a
    gang scheduler, ``queue_timeout_seconds`` and ``pending_timeout_seconds`` apply, the only permitted
    ``scheduler`` is ``"none"``, and the other options have no effect. Only the kfpytorch backend reads a
    `Gang`; Flyte's own backend plugin ignores it.

    ``Gang(...)`` does not check its arguments. `PyTorch` and `Elastic` raise an error if the arguments are
    invalid.

    Args:
        scheduler: The gang scheduler: the one in the settings of the platform, or one of their
            ``allowed-schedulers``. If the platform sets ``auto``, any scheduler that the backend can detect
            in the cluster. With ``"none"``, the pods are scheduled one by one. Default: the scheduler in the
            settings of the platform.
        queue: The queue in which the job waits.
        min_member: The number of replicas that must fit before any of them starts. Default: all replicas, or
            the smallest number of nodes of an `Elastic` task. An MPI task, and a TrainJob with KAI, need
            all replicas.
        priority_class_name: The priority of the gang: a PriorityClass, or for Kueue a WorkloadPriorityClass.
        queue_timeout_seconds: Maximum time that the job waits in its queue. Time in the queue does not count
            as run time.
        pending_timeout_seconds: Maximum time that the pods wait for nodes after the queue admitted the job.
    """

    scheduler: Annotated[str | None, validators.read_name] = None
    queue: Annotated[str | None, validators.read_name] = None
    min_member: Annotated[int | None, validators.read_positive] = None
    priority_class_name: Annotated[str | None, validators.read_priority_class] = None
    queue_timeout_seconds: Annotated[int | None, validators.read_positive] = None
    pending_timeout_seconds: Annotated[int | None, validators.read_positive] = None


def check_min_member(gang: Gang | None, low: int, high: int) -> Iterator[ConfigProblem]:
    """Yield a problem if ``min_member`` is set and is not a number of replicas from `low` to `high`."""
    least = None if gang is None else gang.min_member
    if least is not None and not low <= least <= high:
        remedy = f"must be from {low}, with which training begins, to {high}, all replicas of the task"
        yield ConfigProblem("gang.min_member", least, remedy)


def _read_package(package: object) -> object:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(package if isinstance(package, str) else "")
    except InvalidRequirement as error:
        reason = str(error).partition("\n")[0]
        remedy = f"must be a requirement such as 'einops>=0.8': {reason}"
        raise build_invalid_value(package, remedy) from error


_read_packages: Final = validators.build_list_reader(
    _read_package, "must be a list of requirements such as ['einops>=0.8']"
)


@dataclass(kw_only=True)
class TrainJob(ConfigPart):
    """Options that only Kubeflow Trainer v2 supports.

    If the configuration of a task contains a `TrainJob`, the kfpytorch backend runs the task as a TrainJob.
    The backend rejects the task if the settings of the platform select another kind of job.

    ``TrainJob(...)`` does not check its arguments. `PyTorch` and `Elastic` raise an error if arguments of
    ``TrainJob(...)`` are invalid.

    Args:
        runtime: The name of a training runtime of the cluster. The TrainJob changes it for the task by
            patches. Default: a runtime that the backend creates for each job.
        runtime_kind: ``"ClusterTrainingRuntime"`` (the default) or ``"TrainingRuntime"``. It requires
            ``runtime``.
        max_restarts: The number of times that all nodes restart together after a failure: ``maxRestarts`` of
            the JobSet. Restarts after a preemption or the loss of a Kubernetes node do not count. It cannot
            be combined with ``num_retries`` and ``backoff_limit``, which set the same number. In contrast,
            ``max_restarts`` of `Elastic` is the number of restarts of the processes within their pods.
        packages: Packages that each node installs before the task, once for all of its ranks: requirements of
            pip such as ``"einops>=0.8"``. The image needs pip 22.2 or newer. To set variables of pip, such as
            ``PIP_INDEX_URL``, use ``environment`` of the task. If the installation fails, the task fails. A
            local run installs nothing, but checks that the packages are installed.
        success_policy: The nodes whose success ends the job: a `SuccessPolicy`. Default: all nodes.
        pod_failure_policy: Rules for failed pods: a list of `PodFailurePolicyRule`. Default: after a
            failure, all nodes restart if a restart is left.
        dataset: A data set that Trainer loads before the nodes start: a URI or a `Dataset`. If you set
            ``runtime``, this runtime must have the job ``dataset-initializer``.
        model: A model that Trainer loads before the nodes start: a URI or a `Model`. If you set ``runtime``,
            this runtime must have the job ``model-initializer``.
        storage: The volume for the data set and the model: a size such as ``"50Gi"``, or a `Storage`. It
            cannot be combined with ``runtime``.
        framework: ``"torch"``, ``"jax"`` or ``"mpi"``. With ``"jax"``, each process has the environment
            variables that ``jax.distributed.initialize`` reads. With ``"mpi"``, mpirun of Open MPI starts the
            processes, and the image must contain Open MPI and sshd.
        topology: The kind of domain, such as a rack, in which all nodes run together: a `Topology`. Default:
            the nodes can run anywhere.
    """

    runtime: Annotated[str | None, validators.build_object_name_reader("a runtime")] = None
    runtime_kind: Annotated[str | None, validators.build_choice_reader(*_RUNTIME_KINDS)] = None
    max_restarts: Annotated[int | None, validators.read_count] = None
    packages: Annotated[Sequence[str] | None, _read_packages] = None
    success_policy: Annotated[SuccessPolicy | None, build_config_reader(SuccessPolicy)] = None
    pod_failure_policy: Annotated[Sequence[PodFailurePolicyRule] | None, read_pod_failure_policy] = None
    dataset: Annotated[Dataset | str | None, data_sources.read_dataset] = None
    model: Annotated[Model | str | None, data_sources.read_model] = None
    storage: Annotated[Storage | str | None, data_sources.read_storage] = None
    framework: Annotated[str, validators.build_choice_reader(*FRAMEWORKS)] = TORCH
    topology: Annotated[Topology | None, build_config_reader(Topology)] = None

    def _find_contradictions(self, sound: Set[str]) -> Iterator[ConfigProblem]:
        if {"dataset", "model", "storage", "runtime"} <= sound:
            yield from data_sources.find_contradictions(self)


def check_succeeded_nodes(train_job: TrainJob | None, nodes: int | None) -> Iterator[ConfigProblem]:
    """Yield a problem if the success policy of `train_job` has an index above that of the last node.

    `nodes` is the number of nodes; None for an `Elastic` task, for which every success policy is a problem.
    """
    policy = train_job.success_policy if train_job is not None else None
    if policy is None:
        return
    ranges = parse_indexes(policy.succeeded_indexes)
    if nodes is None:
        remedy = "names nodes, and rank 0 of Elastic may be on any node; use PyTorch, or leave it out"
        yield ConfigProblem("train_job.success_policy", policy, remedy)
    elif ranges and ranges[-1].stop > nodes:
        remedy = f"the task has {nodes} nodes; write indexes up to {nodes - 1}"
        yield ConfigProblem("train_job.success_policy.succeeded_indexes", policy.succeeded_indexes, remedy)
