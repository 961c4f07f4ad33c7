"""Conversion and validation of flyteidl's replica specs, run policy and elastic config."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from flyteidl.core.tasks_pb2 import Resources as WireResources
from flyteidl.plugins import common_pb2
from flyteidl.plugins.kubeflow import common_pb2 as kubeflow_pb2
from msgspec import structs

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import (
    GangOptions,
    JobRunPolicy,
    Placement,
    ReplicaGroup,
    ReplicaRole,
    Resources,
    TrainJobOptions,
)
from backend_plugin.core.protojson import build_problem
from kfpytorch_common.frameworks import MPI

GPU: Final = "nvidia.com/gpu"
# A pod is named <job>-worker-<index>. The name has at most 63 characters, and the job's part at most 50.
MOST_REPLICAS: Final = 100_000

_KEYS: Final = {ReplicaRole.MASTER: "masterReplicas", ReplicaRole.WORKER: "workerReplicas"}
_RESTART_POLICIES: Final = {
    common_pb2.RESTART_POLICY_NEVER: "Never",
    common_pb2.RESTART_POLICY_ON_FAILURE: "OnFailure",
    common_pb2.RESTART_POLICY_ALWAYS: "Always",
}
_CLEAN_POD_POLICIES: Final = {
    kubeflow_pb2.CLEANPOD_POLICY_NONE: "None",
    kubeflow_pb2.CLEANPOD_POLICY_RUNNING: "Running",
    kubeflow_pb2.CLEANPOD_POLICY_ALL: "All",
}
RESOURCE_NAMES: Final[Mapping[int, str]] = {
    WireResources.CPU: "cpu",
    WireResources.MEMORY: "memory",
    WireResources.GPU: GPU,
    WireResources.EPHEMERAL_STORAGE: "ephemeral-storage",
}
"""The Kubernetes names of flyteidl's resources."""


def read(role: ReplicaRole, spec: Any, problems: list[Problem]) -> ReplicaGroup:
    """Return the replicas of a role from its flyteidl spec; a master always has one replica."""
    path = f"custom.{_KEYS[role]}"
    if spec.HasField("common"):
        spec, path = spec.common, f"{path}.common"
    problems += check_replica_count(spec.replicas, f"{path}.replicas")
    if role is ReplicaRole.MASTER and spec.replicas > 1:
        remedy = "write 1, and add the others as workers"
        problems.append(
            build_problem(f"{path}.replicas", spec.replicas, "a job has exactly one master", remedy)
        )
    return ReplicaGroup(
        role=role,
        replicas=1 if role is ReplicaRole.MASTER else spec.replicas,
        restart_policy=_get_enum_name(
            _RESTART_POLICIES, spec.restart_policy, f"{path}.restartPolicy", problems
        ),
        image=spec.image or None,
        resources=_read_resources(spec.resources, f"{path}.resources", problems),
    )


def read_run_policy(message: Any, problems: list[Problem]) -> JobRunPolicy:
    """Return the run policy; 0 in the flyteidl message means "not set"."""
    path = "custom.runPolicy"
    numbers = {
        "ttlSecondsAfterFinished": message.ttl_seconds_after_finished,
        "activeDeadlineSeconds": message.active_deadline_seconds,
        "backoffLimit": message.backoff_limit,
    }
    for key, number in numbers.items():
        problems += _check_not_negative(number, f"{path}.{key}")
    return JobRunPolicy(
        clean_pod_policy=_get_enum_name(
            _CLEAN_POD_POLICIES, message.clean_pod_policy, f"{path}.cleanPodPolicy", problems
        ),
        ttl_seconds_after_finished=message.ttl_seconds_after_finished or None,
        active_deadline_seconds=message.active_deadline_seconds or None,
        backoff_limit=message.backoff_limit or None,
    )


def with_placement(group: ReplicaGroup, placement: Placement | None) -> ReplicaGroup:
    """Return the group with the placement, if it is not None."""
    return group if placement is None else structs.replace(group, placement=placement)


def with_retries(group: ReplicaGroup, retries: int | None) -> ReplicaGroup:
    """Return the group with the number of restarts, if it is not None."""
    return group if retries is None else structs.replace(group, num_retries=retries)


def check_replica_count(replicas: int, path: str) -> Iterator[Problem]:
    """Yield the problems of a number of replicas."""
    yield from _check_not_negative(replicas, path)
    if replicas > MOST_REPLICAS:
        message = "is too large for pod names, which have at most 63 characters"
        yield build_problem(path, replicas, message, f"write at most {MOST_REPLICAS}")


def check_elastic(elastic: Any, workers: int) -> Iterator[Problem]:
    """Yield the problems of an elastic config and of the number of workers for it."""
    path = "custom.elasticConfig"
    low, high, processes = elastic.min_replicas, elastic.max_replicas, elastic.nproc_per_node
    if not elastic.ListFields():
        remedy = "write minReplicas, maxReplicas and nprocPerNode"
        yield build_problem(path, {}, "has no number of nodes", remedy)
        return
    yield from _check_not_negative(elastic.max_restarts, f"{path}.maxRestarts")
    if processes < 1:
        yield build_problem(f"{path}.nprocPerNode", processes, "starts no process", "write at least 1")
    if low < 1:
        yield build_problem(f"{path}.minReplicas", low, "is less than one node", "write at least 1")
    if high < low:
        remedy = f"write at least minReplicas, {low}"
        yield build_problem(f"{path}.maxReplicas", high, "is less than minReplicas", remedy)
    elif not low <= workers <= high:
        # With fewer workers the rendezvous would never complete; with more, some would not take part.
        remedy = f"write {high}, or change minReplicas and maxReplicas"
        message = f"is not between minReplicas and maxReplicas, {low} and {high}"
        yield build_problem("custom.workerReplicas.replicas", workers, message, remedy)


def check_fixed_size(elastic: Any) -> Iterator[Problem]:
    """Yield a problem if an elastic config has a range, which only torch supports."""
    if elastic.min_replicas < elastic.max_replicas:
        nodes = f"{elastic.min_replicas}:{elastic.max_replicas}"
        message = "is a range, and only torch has elastic jobs"
        yield build_problem("custom.elasticConfig", nodes, message, "write a fixed number of nodes")


def check_gang(
    gang: GangOptions | None, groups: tuple[ReplicaGroup, ...], elastic: Any, framework: str
) -> Iterator[Problem]:
    """Yield a problem if the job cannot have the gang's minimum.

    It is at most the number of replicas, and at least the number of nodes of an elastic config or MPI job.
    """
    if gang is None or gang.min_member is None:
        return
    where, there = "custom.kfpytorch.gang.minMember", sum(group.replicas for group in groups)
    fewest = elastic.min_replicas if elastic is not None else there if framework == MPI else 0
    if gang.min_member > there > 0:
        message = f"is more than the {there} replicas of the job: none would ever start"
        yield build_problem(where, gang.min_member, message, f"write at most {there}")
    elif 0 < gang.min_member < fewest <= there:
        message = f"is less than the {fewest} nodes that training starts with: they would wait for others"
        yield build_problem(where, gang.min_member, message, f"write at least {fewest}")


def check_max_restarts(
    options: TrainJobOptions | None, groups: tuple[ReplicaGroup, ...], policy: JobRunPolicy
) -> Iterator[Problem]:
    """Yield a problem if the job has another limit of its restarts besides `max_restarts`."""
    if options is None or options.max_restarts is None:
        return
    # The plugin derives the backoff limit from the retries.
    retries = max((each.num_retries for each in groups if each.num_retries is not None), default=None)
    others = {"kfpytorch.numRetries": retries, "runPolicy.backoffLimit": policy.backoff_limit}
    field, limit = next(((key, value) for key, value in others.items() if value is not None), ("", None))
    if limit is not None:
        message = f"is a second limit besides kfpytorch.trainJob.maxRestarts, {options.max_restarts}"
        yield build_problem(f"custom.{field}", limit, message, "leave one of the two out")


def _read_resources(message: Any, path: str, problems: list[Problem]) -> Resources | None:
    if not message.requests and not message.limits:
        return None
    return Resources(
        requests=_read_entries(message.requests, f"{path}.requests", problems),
        limits=_read_entries(message.limits, f"{path}.limits", problems),
    )


def _read_entries(entries: Any, path: str, problems: list[Problem]) -> dict[str, str]:
    remedy = "write CPU, MEMORY, GPU or EPHEMERAL_STORAGE"
    for index, entry in enumerate(entries):
        if entry.name not in RESOURCE_NAMES:
            named = (
                WireResources.ResourceName.Name(entry.name)
                if _is_declared_resource(entry.name)
                else entry.name
            )
            message = "is not a resource that a container can request"
            problems.append(build_problem(f"{path}[{index}].name", named, message, remedy))
    return {RESOURCE_NAMES[entry.name]: entry.value for entry in entries if entry.name in RESOURCE_NAMES}


def _is_declared_resource(number: int) -> bool:
    return number in WireResources.ResourceName.values()


def _get_enum_name(names: Mapping[int, str], number: int, path: str, problems: list[Problem]) -> str:
    if number not in names:
        allowed = ", ".join(f"{key} ({name})" for key, name in names.items())
        problems.append(build_problem(path, number, "is not one of its values", f"write one of {allowed}"))
    return names.get(number, names[0])


def _check_not_negative(number: int, path: str) -> Iterator[Problem]:
    if number < 0:
        yield build_problem(path, number, "is negative", "write 0 or more, or leave it out")
