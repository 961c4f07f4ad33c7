"""The environment variables of a TrainJob's nodes; those for torch mean the same as in a PyTorchJob."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from backend_plugin.core.dialects.trainjob.resource import INDEX, LAUNCHER, PORT, ROLE, build_host_name
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import ElasticPolicy, ReplicaGroup, TrainingJob
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_mappings
from backend_plugin.core.values import Manifest
from kfpytorch_common.data_sources import PATH_VARIABLES, PATHS
from kfpytorch_common.frameworks import JAX, MPI

_OF_INDEX: Final[Manifest] = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
_RESERVED: Final = frozenset({
    *("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"),
    *("PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NODE_RANK", "PET_NNODES", "PET_NPROC_PER_NODE"),
    *("PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID", "PET_MAX_RESTARTS"),
    *("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
})  # fmt: skip


def build_environment(job: TrainingJob, group: ReplicaGroup, name: str) -> list[Manifest]:
    """Return the environment variables of a node's containers; `name` is the name of the job."""
    # The DNS name of the first node, which is published before the node is ready.
    address = f"{build_host_name(name, LAUNCHER if job.framework == MPI else ROLE, 0)}.{name}"
    values = {"PYTHONUNBUFFERED": "1", **{PATH_VARIABLES[kind]: PATHS[kind] for kind in job.sources}}
    if job.elastic is not None:
        values |= _build_rendezvous(job.elastic, group, name, address)
    else:
        values |= _build_fixed_values(job, group, address)
    ranks: list[Manifest] = [
        {"name": key, "valueFrom": _OF_INDEX} for key in _list_index_variables(job, group)
    ]
    return [*({"name": key, "value": value} for key, value in values.items()), *ranks]


def _list_index_variables(job: TrainingJob, group: ReplicaGroup) -> Sequence[str]:
    # The elastic agent of torch and mpirun assign the ranks.
    if job.elastic is not None or job.framework == MPI:
        return ()
    # Several processes of a node get their numbers from the process that starts them.
    is_numbered = job.framework == JAX and group.processes == 1
    return ("RANK", "PET_NODE_RANK", *(["JAX_PROCESS_ID"] if is_numbered else []))


def _build_rendezvous(elastic: ElasticPolicy, group: ReplicaGroup, name: str, address: str) -> dict[str, str]:
    return {
        "PET_RDZV_ENDPOINT": f"{address}:{PORT.number}",
        "PET_RDZV_BACKEND": elastic.rdzv_backend,
        "PET_RDZV_ID": name,
        "PET_NNODES": f"{elastic.min_replicas}:{elastic.max_replicas}",
        "PET_NPROC_PER_NODE": str(group.processes),
        "PET_MAX_RESTARTS": str(elastic.max_restarts),
    }


def _build_fixed_values(job: TrainingJob, group: ReplicaGroup, address: str) -> dict[str, str]:
    size = str(group.replicas * group.processes)
    jax = {"JAX_COORDINATOR_ADDRESS": f"{address}:{PORT.number}", "JAX_NUM_PROCESSES": size}
    return {
        "MASTER_PORT": str(PORT.number),
        "PET_MASTER_PORT": str(PORT.number),
        "MASTER_ADDR": address,
        "PET_MASTER_ADDR": address,
        "WORLD_SIZE": size,
        "PET_NNODES": str(group.replicas),
        # training-operator sets the same value in the pods of a PyTorchJob.
        "PET_NPROC_PER_NODE": "auto",
        **(jax if job.framework == JAX else {}),
    }


def with_environment(container: Manifest, env: Sequence[Manifest]) -> Manifest:
    """Return the container with the variables `env`, which replace its own variables of the same names."""
    replaced = {each["name"] for each in env}
    own = [each for each in get_mappings(container, "env") if each.get("name") not in replaced]
    return {**container, "env": [*own, *env]}


def check_container(container: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Yield a problem for each variable that a task must not set, because its value differs between nodes."""
    for each in container.get("env", ()):
        if (name := each.get("name")) in _RESERVED:
            message = "is a variable that each node of a TrainJob gets with its own value"
            yield build_problem(f"{path}.env", name, message, "leave it out")
