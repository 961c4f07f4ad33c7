"""The environment variables of the nodes, with the names and meanings that they have in a PyTorchJob."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from backend_plugin.core.dialects.trainjob.resource import INDEX, LAUNCHER, PORT, ROLE, build_master_address
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import ReplicaGroup, TrainingJob
from backend_plugin.core.protojson import format_value
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
    """Return the variables of each container of a node, for the job with this name."""
    is_mpi = job.framework == MPI
    address, port = build_master_address(name, LAUNCHER if is_mpi else ROLE), str(PORT.number)
    values = {"PYTHONUNBUFFERED": "1"}
    values |= {PATH_VARIABLES[kind]: PATHS[kind] for kind in job.sources}
    if job.elastic is not None:
        values |= {
            "PET_RDZV_ENDPOINT": f"{address}:{port}",
            "PET_RDZV_BACKEND": job.elastic.rdzv_backend,
            "PET_RDZV_ID": name,
            "PET_NNODES": f"{job.elastic.min_replicas}:{job.elastic.max_replicas}",
            "PET_NPROC_PER_NODE": str(group.processes),
            "PET_MAX_RESTARTS": str(job.elastic.max_restarts),
        }
        return [{"name": key, "value": value} for key, value in values.items()]
    values |= {
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
        "MASTER_ADDR": address,
        "PET_MASTER_ADDR": address,
        "WORLD_SIZE": str(group.replicas * group.processes),
        "PET_NNODES": str(group.replicas),
        # The operator of a PyTorchJob sets this value, too.
        "PET_NPROC_PER_NODE": "auto",
    }
    # mpirun numbers the ranks.
    by_index = [] if is_mpi else ["RANK", "PET_NODE_RANK"]
    if job.framework == JAX:
        values |= {"JAX_COORDINATOR_ADDRESS": f"{address}:{port}", "JAX_NUM_PROCESSES": values["WORLD_SIZE"]}
        # Several processes of a node get their numbers from the process that starts them.
        by_index += ["JAX_PROCESS_ID"] if group.processes == 1 else []
    ranks: list[Manifest] = [{"name": key, "valueFrom": _OF_INDEX} for key in by_index]
    return [*({"name": key, "value": value} for key, value in values.items()), *ranks]


def with_environment(container: Manifest, env: Sequence[Manifest]) -> Manifest:
    """Return a container with these variables in place of its own ones of the same names."""
    ours = {each["name"] for each in env}
    own = [each for each in get_mappings(container, "env") if each.get("name") not in ours]
    return {**container, "env": [*own, *env]}


def check_container(container: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Yield each variable of the training container that `build_environment` sets."""
    for each in container.get("env", ()):
        if (name := each.get("name")) in _RESERVED:
            yield Problem(
                field=f"{path}.env",
                value=format_value(name),
                message="is a variable that each node of a TrainJob gets with its own value",
                remedy="leave it out",
            )
