"""Reads the spec of a stored PyTorchJob, and adds the operator's defaults, which are never stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.dialects.pytorchjob.resource import REPLICA_SPECS
from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.operators.base import OwnerJob

MASTER: Final = "Master"
WORKER: Final = "Worker"
ROLES: Final = (MASTER, WORKER)
DIALECT: Final = DIALECTS["PyTorchJob"]
CONTAINER: Final = DIALECT.container
PORT: Final = DIALECT.port
OWN_MANAGER: Final = "kubeflow.org/training-operator"

ALWAYS: Final = "Always"
ON_FAILURE: Final = "OnFailure"
NEVER: Final = "Never"
EXIT_CODE: Final = "ExitCode"
RESTARTING: Final = (ALWAYS, ON_FAILURE, EXIT_CODE)
"""The restart policies with which failed pods are restarted or recreated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorReplicaSpec:
    """An entry of `pytorchReplicaSpecs`."""

    name: str
    replicas: int
    restart_policy: str
    template: Manifest

    @property
    def label(self) -> str:
        """The name of the role in lower case, as in labels and in the names of pods."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec(OwnerJob):
    """The metadata and the spec fields of a PyTorchJob that the emulated operator uses."""

    roles: tuple[OperatorReplicaSpec, ...]
    """The roles in the order in which they are reconciled."""
    run_policy: Manifest
    nproc_per_node: str
    elastic: Manifest | None

    @property
    def is_suspended(self) -> bool:
        """True if `runPolicy.suspend` is true; such a job has no pods."""
        return self.run_policy.get("suspend") is True

    @property
    def replicas(self) -> int:
        """The total number of replicas of all roles."""
        return sum(role.replicas for role in self.roles)

    def find_role(self, name: str) -> OperatorReplicaSpec | None:
        """Return the role with this name, or None."""
        return next((role for role in self.roles if role.name == name), None)

    def build_pod_name(self, role: str, index: int) -> str:
        """Return the name of a replica's pod and service."""
        return f"{self.name}-{role.lower()}-{index}"


def read_job_spec(manifest: Manifest, order: Sequence[str]) -> JobSpec:
    """Return the job with its roles in the given order. A role that is not in `order` is omitted."""
    spec = get_mapping(manifest, "spec")
    replica_specs = get_mapping(spec, REPLICA_SPECS)
    roles = tuple(
        _read_role(name, get_mapping(replica_specs, name)) for name in order if name in replica_specs
    )
    return JobSpec(
        dialect=DIALECT,
        name=get_text(manifest, "metadata", "name"),
        namespace=get_text(manifest, "metadata", "namespace"),
        uid=get_text(manifest, "metadata", "uid"),
        roles=roles,
        run_policy=get_mapping(spec, "runPolicy"),
        nproc_per_node=str(spec.get("nprocPerNode", "auto")),
        elastic=_read_elastic_policy(spec, roles),
    )


def _read_role(name: str, spec: Manifest) -> OperatorReplicaSpec:
    replicas = get_int(spec, "replicas")
    return OperatorReplicaSpec(
        name=name,
        replicas=1 if replicas is None else replicas,
        restart_policy=get_text(spec, "restartPolicy") or ON_FAILURE,
        template=_with_port(get_mapping(spec, "template")),
    )


def _with_port(template: Manifest) -> Manifest:
    """Return the template, with the default rendezvous port if its training container has none."""
    spec = get_mapping(template, "spec")
    containers = get_mappings(spec, "containers")
    index = next((at for at, each in enumerate(containers) if each.get("name") == CONTAINER), 0)
    if not containers or any(
        port.get("name") == PORT.name for port in get_mappings(containers[index], "ports")
    ):
        return template
    port: Manifest = {"name": PORT.name, "containerPort": PORT.number, "protocol": "TCP"}
    containers[index] = {**containers[index], "ports": [*get_mappings(containers[index], "ports"), port]}
    return {**template, "spec": {**spec, "containers": containers}}


def _read_elastic_policy(spec: Manifest, roles: Sequence[OperatorReplicaSpec]) -> Manifest | None:
    """Return `elasticPolicy` with the bounds `minReplicas` and `maxReplicas`; None if the job has no policy.

    A missing bound is set to the other bound; if both are missing, both are set to the number of workers.
    """
    policy = spec.get("elasticPolicy")
    if not isinstance(policy, dict):
        return None
    workers = next((role.replicas for role in roles if role.name == WORKER), 0)
    low, high = get_int(policy, "minReplicas"), get_int(policy, "maxReplicas")
    default = next((each for each in (low, high) if each is not None), workers)
    return {
        **policy,
        "minReplicas": default if low is None else low,
        "maxReplicas": default if high is None else high,
    }
