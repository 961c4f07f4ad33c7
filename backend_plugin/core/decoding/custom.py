"""Conversion of a task template to a TrainingJob; the inverse of ``flytekitplugins.kfpytorch.custom``.

The field `custom` of the template contains a message of flyteidl: that of ``plugins.pytorch`` (version 0) or
``plugins.kubeflow.pytorch`` (version 1).
"""

from collections.abc import Callable, Mapping, Set
from typing import Any, Final

import msgspec
from flyteidl.core.tasks_pb2 import TaskTemplate
from flyteidl.plugins import pytorch_pb2 as version_0
from flyteidl.plugins.kubeflow import pytorch_pb2 as version_1
from msgspec.structs import replace

from backend_plugin.core import protojson
from backend_plugin.core.decoding import extension, replica_specs, train_job_checks
from backend_plugin.core.errors import CUSTOM_BYTES, InvalidTask, Problem, check_size
from backend_plugin.core.job import (
    Attempt,
    ElasticPolicy,
    JobRunPolicy,
    ReplicaGroup,
    ReplicaRole,
    TrainingJob,
)
from backend_plugin.core.names import TASK_TYPE
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.train_job_options import TrainJobOptions
from backend_plugin.core.values import Manifest
from kfpytorch_common.frameworks import TORCH

# Keys that only one of the two layouts has. A reader of the other layout ignores them and loses all workers.
_OF_VERSION_0: Final = {"workers"}
_GROUPS: Final = {"workerReplicas", "worker_replicas", "masterReplicas", "master_replicas"}
_OF_VERSION_1: Final = {*_GROUPS, "runPolicy", "run_policy"}
# A custom without any of these keys specifies no replicas; Flyte would run only a master.
_OF_REPLICAS: Final = {*_OF_VERSION_0, *_GROUPS, "elasticConfig", "elastic_config"}
_REMEDY_OF_FOREIGN_TYPE: Final = (
    f"let Flyte run it without this backend, which runs only tasks of type {TASK_TYPE}"
)
# The plugin gives a task with `Elastic(nnodes=1)` the task type of a plain Python task.
_REMEDIES_BY_TYPE: Final = {
    "python-task": "let Flyte run it in an ordinary pod, without this backend; "
    'if it has Elastic(nnodes=1), write nnodes="1" to run it as a job'
}


class _ParsedCustom(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the field `custom` of a task template, independent of its layout version."""

    groups: tuple[ReplicaGroup, ...]
    """The replica groups, the master first; also those without replicas, and the master of an elastic job."""
    elastic: Any
    """flyteidl's ElasticConfig, or None."""
    run_policy: JobRunPolicy


def decode(template: TaskTemplate, run: Attempt, problems: list[Problem]) -> TrainingJob:
    """Return the job of a task template, without its pods, and add the template's problems to `problems`.

    If a problem is added, the result is incomplete: use it only to search for further problems. Raise
    `InvalidTask` if the field `custom` is larger than the limit.
    """
    if too_large := check_size("custom", template.custom.ByteSize(), CUSTOM_BYTES):
        raise InvalidTask(*too_large)
    custom = protojson.decode_struct(template.custom)
    parsed = _select_layout_reader(template, custom, problems)(custom, problems)
    extended = extension.decode(custom.get(extension.KEY), problems)
    options, config = extended.train_job or TrainJobOptions(), parsed.elastic
    framework = options.framework
    elastic = _build_elastic_policy(config) if config is not None and framework == TORCH else None
    groups = _build_replica_groups(parsed, extended)
    replicas = sum([group.replicas for group in groups])
    problems += replica_specs.check_elastic(config, parsed.groups[1].replicas, framework)
    problems += replica_specs.check_gang(extended.gang, replicas, config, framework)
    problems += replica_specs.check_mpi(options, replicas)
    problems += replica_specs.check_max_restarts(options, groups, parsed.run_policy)
    problems += train_job_checks.check_policies(options, replicas, elastic=elastic is not None)
    if config is not None and ReplicaRole.MASTER in extended.roles:
        path, message = f"custom.{extension.KEY}.master", "an elastic job has no master"
        problems.append(build_problem(path, "{...}", message, "set it for the worker"))
    return TrainingJob(
        run=run,
        # Keep at least one group, so that the pods of a task with problems are validated too.
        groups=groups or parsed.groups,
        nproc_per_node=None if config is None else config.nproc_per_node,
        elastic=elastic,
        run_policy=parsed.run_policy,
        gang=extended.gang,
        train_job=extended.train_job,
    )


_Layout = Callable[[Manifest, list[Problem]], _ParsedCustom]


def _select_layout_reader(template: TaskTemplate, custom: Manifest, problems: list[Problem]) -> _Layout:
    """Return the function that reads `custom`; add problems of the task type, the layout version and keys."""
    is_ours, version = template.type == TASK_TYPE, template.task_type_version
    if not is_ours:
        remedy = _REMEDIES_BY_TYPE.get(template.type, _REMEDY_OF_FOREIGN_TYPE)
        problems.append(build_problem("type", template.type, "is not a task type of this backend", remedy))
    if version not in _LAYOUTS:
        message = "is a layout that this backend does not support"
        remedy = "register the task with a plugin that writes version 1"
        problems.append(build_problem("taskTypeVersion", version, message, remedy))
        return _read_version_1
    if is_ours and not custom.keys() & _OF_REPLICAS:
        remedy = "register the task again, with a task_config"
        problems.append(build_problem("custom", custom, "contains no replicas", remedy))
    read, foreign = _LAYOUTS[version]
    for key in custom.keys() & foreign:
        other = 1 - version
        message = f"belongs to version {other} of the custom; version {version} would lose the workers"
        remedy = f"set the template's taskTypeVersion to {other}, or write the custom of version {version}"
        problems.append(build_problem(f"custom.{key}", custom[key], message, remedy))
    return read


def _read_version_0(custom: Manifest, problems: list[Problem]) -> _ParsedCustom:
    message = version_0.DistributedPyTorchTrainingTask()
    protojson.parse_message(custom, message, "custom", problems)
    problems += replica_specs.check_replica_count(message.workers, "custom.workers")
    return _ParsedCustom(
        groups=(
            ReplicaGroup(role=ReplicaRole.MASTER, replicas=1, restart_policy="Never"),
            ReplicaGroup(role=ReplicaRole.WORKER, replicas=message.workers, restart_policy="Never"),
        ),
        elastic=message.elastic_config if message.HasField("elastic_config") else None,
        run_policy=JobRunPolicy(),
    )


def _read_version_1(custom: Manifest, problems: list[Problem]) -> _ParsedCustom:
    message = version_1.DistributedPyTorchTrainingTask()
    protojson.parse_message(custom, message, "custom", problems)
    return _ParsedCustom(
        groups=(
            replica_specs.read(ReplicaRole.MASTER, message.master_replicas, problems),
            replica_specs.read(ReplicaRole.WORKER, message.worker_replicas, problems),
        ),
        elastic=message.elastic_config if message.HasField("elastic_config") else None,
        run_policy=replica_specs.read_run_policy(message.run_policy, problems),
    )


_LAYOUTS: Final[Mapping[int, tuple[_Layout, Set[str]]]] = {
    0: (_read_version_0, _OF_VERSION_1),
    1: (_read_version_1, _OF_VERSION_0),
}
"""The function that reads each layout version of `custom`, and the keys of the other version."""


def _build_replica_groups(parsed: _ParsedCustom, extended: extension.Extension) -> tuple[ReplicaGroup, ...]:
    groups = parsed.groups
    if parsed.elastic is not None:
        processes = parsed.elastic.nproc_per_node
        groups = tuple(replace(group, processes=processes) for group in parsed.groups[1:])
    options = [extended.roles.get(group.role, (group.placement, None)) for group in groups]
    return tuple(
        replace(group, placement=placement, num_retries=retries)
        for group, (placement, retries) in zip(groups, options, strict=True)
        if group.replicas > 0
    )


def _build_elastic_policy(elastic: Any) -> ElasticPolicy:
    return ElasticPolicy(
        min_replicas=elastic.min_replicas,
        max_replicas=elastic.max_replicas,
        # The operator would pass "" on to torch, which rejects it.
        rdzv_backend=elastic.rdzv_backend or "c10d",
        max_restarts=elastic.max_restarts,
    )
