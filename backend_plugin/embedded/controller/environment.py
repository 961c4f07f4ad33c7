"""Builds the environment variables that the operator appends to every container of a replica.

A variable that the author sets comes before them and is overridden.
"""

from typing import Final

from backend_plugin.core.reading import entries, number, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.controller.deviations import Deviations
from backend_plugin.embedded.controller.job import CONTAINER, MASTER, PORT_NAME, WORKER, Job, Role

_BACKEND: Final = "c10d"


class CannotBeMade(Exception):
    """Raised where the operator fails with an error or a panic and retries without success."""


def of_replica(job: Job, role: Role, index: int, deviations: Deviations) -> list[Manifest]:
    """Return the variables for the containers of one replica, in the operator's order."""
    variables: dict[str, str] = {"PYTHONUNBUFFERED": "1"}
    said = [*variables.items(), *_master(job, role, index)]
    if job.nproc_per_node is not None:
        said.append(("PET_NPROC_PER_NODE", job.nproc_per_node))
    if job.elastic is None:
        said.append(("PET_NNODES", str(job.replicas)))
    else:
        said += _elastic(job, job.elastic, deviations)
    return [{"name": name, "value": value} for name, value in said]


def _master(job: Job, role: Role, index: int) -> list[tuple[str, str]]:
    master = job.role(MASTER)
    if master is None:
        return []
    port, address = str(_port(master)), job.pod_name(MASTER, 0)
    rank = str(index + 1 if role.name == WORKER else index)
    return [
        ("MASTER_PORT", port),
        ("PET_MASTER_PORT", port),
        ("MASTER_ADDR", address),
        ("PET_MASTER_ADDR", address),
        ("WORLD_SIZE", str(job.replicas * _processes(job))),
        ("RANK", rank),
        ("PET_NODE_RANK", rank),
    ]


def _processes(job: Job) -> int:
    """Return the number of processes of a replica. Words such as ``auto`` count as one."""
    said = job.nproc_per_node or ""
    digits = said[1:] if said[:1] in ("+", "-") else said
    return int(said) if digits.isascii() and digits.isdigit() else 1


def _elastic(job: Job, policy: Manifest, deviations: Deviations) -> list[tuple[str, str]]:
    said = [
        ("PET_RDZV_ENDPOINT", _endpoint(job, policy)),
        ("PET_RDZV_BACKEND", str(policy.get("rdzvBackend", _BACKEND))),
        ("PET_NNODES", f"{policy['minReplicas']}:{policy['maxReplicas']}"),
    ]
    optional = {
        "PET_MAX_RESTARTS": "maxRestarts",
        "PET_NPROC_PER_NODE": "nProcPerNode",
        "PET_RDZV_ID": "rdzvId",
    }
    said += [(name, str(policy[field])) for name, field in optional.items() if field in policy]
    said += _rdzv_conf(policy, deviations)
    if policy.get("standalone") is True:
        said.append(("PET_STANDALONE", "1" if deviations.standalone_is_a_number else ""))
    return said


def _endpoint(job: Job, policy: Manifest) -> str:
    host = policy.get("rdzvHost", job.pod_name(WORKER, 0))
    port = number(policy, "rdzvPort")
    if port is None:
        worker = job.role(WORKER)
        if worker is None:
            raise CannotBeMade("port not found")
        port = _port(worker)
    return f"{host}:{port}"


def _rdzv_conf(policy: Manifest, deviations: Deviations) -> list[tuple[str, str]]:
    if "rdzvConf" not in policy:
        return []
    pairs = [f"{text(each, 'key')}={text(each, 'value')}" for each in entries(policy, "rdzvConf")]
    if pairs:
        return [("PET_RDZV_CONF", ",".join(pairs))]
    if deviations.rdzv_conf_may_be_empty:
        return []
    raise CannotBeMade("slice bounds out of range [:-1]")


def _port(role: Role) -> int:
    for container in entries(section(role.template, "spec"), "containers"):
        for port in entries(container, "ports"):
            found = number(port, "containerPort")
            if container.get("name") == CONTAINER and port.get("name") == PORT_NAME and found is not None:
                return found
    raise CannotBeMade("port not found")
