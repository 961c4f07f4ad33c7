"""Builds the environment variables that the operator appends to every container of a replica."""

from typing import Final

from backend_plugin.core.reading import get_int, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.operators.pytorchjob.job_spec import (
    CONTAINER,
    MASTER,
    PORT,
    WORKER,
    JobSpec,
    OperatorReplicaSpec,
)

_BACKEND: Final = "c10d"


class ReplicaNotBuildable(Exception):
    """Raised for a replica for which the operator fails with an error or a panic at every retry."""


def build_variables(job: JobSpec, role: OperatorReplicaSpec, index: int) -> list[Manifest]:
    """Return the variables for the containers of one replica, in the operator's order."""
    variables: dict[str, str] = {"PYTHONUNBUFFERED": "1"}
    pairs = [*variables.items(), *_build_master_variables(job, role, index)]
    if job.nproc_per_node is not None:
        pairs.append(("PET_NPROC_PER_NODE", job.nproc_per_node))
    if job.elastic is None:
        pairs.append(("PET_NNODES", str(job.replicas)))
    else:
        pairs += _build_elastic_variables(job, job.elastic)
    return [{"name": name, "value": value} for name, value in pairs]


def _build_master_variables(job: JobSpec, role: OperatorReplicaSpec, index: int) -> list[tuple[str, str]]:
    master = job.find_role(MASTER)
    if master is None:
        return []
    port, address = str(_get_port(master)), job.build_pod_name(MASTER, 0)
    rank = str(index + 1 if role.name == WORKER else index)
    return [
        ("MASTER_PORT", port),
        ("PET_MASTER_PORT", port),
        ("MASTER_ADDR", address),
        ("PET_MASTER_ADDR", address),
        ("WORLD_SIZE", str(job.replicas * _count_processes(job))),
        ("RANK", rank),
        ("PET_NODE_RANK", rank),
    ]


def _count_processes(job: JobSpec) -> int:
    """Return the number of processes of a replica. Words such as ``auto`` count as one."""
    text = job.nproc_per_node or ""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isascii() and digits.isdigit() else 1


def _build_elastic_variables(job: JobSpec, policy: Manifest) -> list[tuple[str, str]]:
    pairs = [
        ("PET_RDZV_ENDPOINT", _format_endpoint(job, policy)),
        ("PET_RDZV_BACKEND", str(policy.get("rdzvBackend", _BACKEND))),
        ("PET_NNODES", f"{policy['minReplicas']}:{policy['maxReplicas']}"),
    ]
    optional = {
        "PET_MAX_RESTARTS": "maxRestarts",
        "PET_NPROC_PER_NODE": "nProcPerNode",
        "PET_RDZV_ID": "rdzvId",
    }
    pairs += [(name, str(policy[field])) for name, field in optional.items() if field in policy]
    pairs += _build_rdzv_variables(policy)
    if policy.get("standalone") is True:
        pairs.append(("PET_STANDALONE", ""))
    return pairs


def _format_endpoint(job: JobSpec, policy: Manifest) -> str:
    host = policy.get("rdzvHost", job.build_pod_name(WORKER, 0))
    port = get_int(policy, "rdzvPort")
    if port is None:
        worker = job.find_role(WORKER)
        if worker is None:
            raise ReplicaNotBuildable("port not found")
        port = _get_port(worker)
    return f"{host}:{port}"


def _build_rdzv_variables(policy: Manifest) -> list[tuple[str, str]]:
    if "rdzvConf" not in policy:
        return []
    pairs = [
        f"{get_text(each, 'key')}={get_text(each, 'value')}" for each in get_mappings(policy, "rdzvConf")
    ]
    if not pairs:
        raise ReplicaNotBuildable("slice bounds out of range [:-1]")
    return [("PET_RDZV_CONF", ",".join(pairs))]


def _get_port(role: OperatorReplicaSpec) -> int:
    for container in get_mappings(role.template, "spec", "containers"):
        for port in get_mappings(container, "ports"):
            number = get_int(port, "containerPort")
            if container.get("name") == CONTAINER and port.get("name") == PORT.name and number is not None:
                return number
    raise ReplicaNotBuildable("port not found")
