"""Conversion and validation of flyteidl's replica specs, run policy and elastic config."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from flyteidl.core.tasks_pb2 import Resources as WireResources
from flyteidl.plugins import common_pb2
from flyteidl.plugins.kubeflow import common_pb2 as kubeflow_pb2

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import GangOptions, JobRunPolicy, ReplicaGroup, ReplicaRole, Resources
from backend_plugin.core.protojson import build_problem, select_problems
from backend_plugin.core.train_job_options import TrainJobOptions
from kfpytorch_common.frameworks import MPI, TORCH

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


def read(role: ReplicaRole, spec: Any, problems: list[Problem]) -> ReplicaGroup:
    """Convert flyteidl's replica spec of a role; add its problems to `problems`. A master has one replica."""
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


def check_replica_count(replicas: int, path: str) -> Iterator[Problem]:
    """Yield a problem if the number of replicas is negative or greater than `MOST_REPLICAS`."""
    yield from _check_not_negative(replicas, path)
    if replicas > MOST_REPLICAS:
        message = "is too large for pod names, which have at most 63 characters"
        yield build_problem(path, replicas, message, f"write at most {MOST_REPLICAS}")


def check_elastic(elastic: Any, workers: int, framework: str) -> Iterator[Problem]:
    """Yield a problem for each invalid number in an elastic config, and if `workers` is not in its range."""
    if elastic is None:
        return
    path = "custom.elasticConfig"
    low, high, processes = elastic.min_replicas, elastic.max_replicas, elastic.nproc_per_node
    if not elastic.ListFields():
        remedy = "write minReplicas, maxReplicas and nprocPerNode"
        yield build_problem(path, {}, "has no number of nodes", remedy)
        return
    yield from _check_not_negative(elastic.max_restarts, f"{path}.maxRestarts")
    # With fewer workers the rendezvous would never complete; with more, some would not take part.
    outside = f"is not between minReplicas and maxReplicas, {low} and {high}"
    between = f"write {high}, or change minReplicas and maxReplicas"
    at_least = f"write at least minReplicas, {low}"
    is_outside = low <= high and not low <= workers <= high
    fixed, remedy = "is a range, and only torch has elastic jobs", "write a fixed number of nodes"
    yield from select_problems(
        (processes < 1, f"{path}.nprocPerNode", processes, "starts no process", "write at least 1"),
        (low < 1, f"{path}.minReplicas", low, "is less than one node", "write at least 1"),
        (high < low, f"{path}.maxReplicas", high, "is less than minReplicas", at_least),
        (is_outside, "custom.workerReplicas.replicas", workers, outside, between),
        (framework != TORCH and low < high, path, f"{low}:{high}", fixed, remedy),
    )


def check_gang(gang: GangOptions, replicas: int, elastic: Any, framework: str) -> Iterator[Problem]:
    """Yield a problem if the gang's `min_member` is impossible for a job with this number of replicas."""
    if gang.min_member is None:
        return
    path, least = "custom.kfpytorch.gang.minMember", gang.min_member
    # The smallest number of replicas with which the training can start; 0 if there is no minimum.
    fewest = int(elastic.min_replicas) if elastic is not None else replicas if framework == MPI else 0
    if least > replicas > 0:
        message = f"is more than the {replicas} replicas of the job: none would ever start"
        yield build_problem(path, least, message, f"write at most {replicas}")
    elif 0 < least < fewest <= replicas:
        message = f"is less than the {fewest} nodes that training starts with: they would wait for others"
        yield build_problem(path, least, message, f"write at least {fewest}")


def check_mpi(options: TrainJobOptions, nodes: int) -> Iterator[Problem]:
    """Yield a problem for each option that an MPI job with this number of nodes cannot have."""
    if options.framework != MPI:
        return
    path = "custom.kfpytorch.trainJob"
    too_few = "leaves the launcher of mpirun without another node"
    runtime = "has an image of its own for the nodes of an MPI job"
    topology = "cannot place an MPI job, whose launcher is a Job of its own"
    policy = "cannot select nodes of an MPI job, which all end with mpirun"
    remedy, indexes = "leave it out", options.succeeded_indexes
    yield from select_problems(
        (nodes < 2, "custom.workerReplicas.replicas", nodes, too_few, "use at least 2 nodes"),
        (options.runtime is not None, f"{path}.runtime", options.runtime, runtime, remedy),
        (options.topology is not None, f"{path}.topology", "{...}", topology, remedy),
        (indexes is not None, f"{path}.successPolicy", indexes, policy, remedy),
    )


def check_max_restarts(
    options: TrainJobOptions, groups: tuple[ReplicaGroup, ...], policy: JobRunPolicy
) -> Iterator[Problem]:
    """Yield a problem if the job has `max_restarts`, and also a backoff limit or a role's `num_retries`."""
    if options.max_restarts is None:
        return
    # With retries and a backoff limit, report the retries: the plugin derives the backoff limit from them.
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
    amounts: dict[str, str] = {}
    for index, entry in enumerate(entries):
        if name := RESOURCE_NAMES.get(entry.name):
            amounts[name] = entry.value
        else:
            is_declared = entry.name in WireResources.ResourceName.values()
            named = WireResources.ResourceName.Name(entry.name) if is_declared else entry.name
            message = "is not a resource that a container can request"
            remedy = "write CPU, MEMORY, GPU or EPHEMERAL_STORAGE"
            problems.append(build_problem(f"{path}[{index}].name", named, message, remedy))
    return amounts


def _get_enum_name(names: Mapping[int, str], number: int, path: str, problems: list[Problem]) -> str:
    if number not in names:
        allowed = ", ".join(f"{key} ({name})" for key, name in names.items())
        problems.append(build_problem(path, number, "is not one of its values", f"write one of {allowed}"))
    return names.get(number, names[0])


def _check_not_negative(number: int, path: str) -> Iterator[Problem]:
    if number < 0:
        yield build_problem(path, number, "is negative", "write 0 or more, or leave it out")
