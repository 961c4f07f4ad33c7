"""Reads the spec of a stored PyTorchJob with the operator's defaults, which are never stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.reading import entries, number, section, text
from backend_plugin.core.values import Manifest

MASTER: Final = "Master"
WORKER: Final = "Worker"
ROLES: Final = (MASTER, WORKER)
CONTAINER: Final = "pytorch"
PORT_NAME: Final = "pytorchjob-port"
PORT: Final = 23456
OWN_MANAGER: Final = "kubeflow.org/training-operator"

ALWAYS: Final = "Always"
ON_FAILURE: Final = "OnFailure"
NEVER: Final = "Never"
EXIT_CODE: Final = "ExitCode"
RESTARTING: Final = (ALWAYS, ON_FAILURE, EXIT_CODE)
"""The policies that restart or recreate failed pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """An entry of `pytorchReplicaSpecs`."""

    name: str
    replicas: int
    restart_policy: str
    template: Manifest

    @property
    def label(self) -> str:
        """The name as used in labels and in the names of pods."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """The fields of `spec.runPolicy`. None for a field that is not set."""

    clean_pod_policy: str
    suspend: bool
    managed_by: str | None
    ttl_seconds: int | None
    active_deadline_seconds: int | None
    backoff_limit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The spec and metadata of a job."""

    manifest: Manifest
    roles: tuple[Role, ...]
    """The roles in the order of processing."""
    run_policy: RunPolicy
    nproc_per_node: str | None
    elastic: Manifest | None

    @property
    def name(self) -> str:
        """The name of the job."""
        return text(section(self.manifest, "metadata"), "name")

    @property
    def namespace(self) -> str:
        """The namespace of the job and of all its objects."""
        return text(section(self.manifest, "metadata"), "namespace")

    @property
    def uid(self) -> str:
        """The uid, which differs from that of an earlier job with the same name."""
        return text(section(self.manifest, "metadata"), "uid")

    @property
    def replicas(self) -> int:
        """The number of replicas of all roles."""
        return sum(role.replicas for role in self.roles)

    @property
    def is_deleted(self) -> bool:
        """True if the job is being deleted."""
        return bool(section(self.manifest, "metadata").get("deletionTimestamp"))

    def role(self, name: str) -> Role | None:
        """Return the role with this name, or None."""
        return next((role for role in self.roles if role.name == name), None)

    def pod_name(self, role: str, index: int) -> str:
        """Return the name of a replica's pod and service."""
        return f"{self.name}-{role.lower()}-{index}"


def read(manifest: Manifest, order: Sequence[str]) -> Job:
    """Return the job with its roles in the given order. A role that is not in `order` is omitted."""
    spec = section(manifest, "spec")
    replica_specs = section(spec, "pytorchReplicaSpecs")
    roles = tuple(_role(name, section(replica_specs, name)) for name in order if name in replica_specs)
    return Job(
        manifest=manifest,
        roles=roles,
        run_policy=_run_policy(section(spec, "runPolicy")),
        nproc_per_node=_nproc_per_node(spec),
        elastic=_elastic(spec, roles),
    )


def _role(name: str, spec: Manifest) -> Role:
    replicas = number(spec, "replicas")
    return Role(
        name=name,
        replicas=1 if replicas is None else replicas,
        restart_policy=text(spec, "restartPolicy") or ON_FAILURE,
        template=_with_port(section(spec, "template")),
    )


def _with_port(template: Manifest) -> Manifest:
    """Return the template with the rendezvous port in its training container."""
    spec = section(template, "spec")
    containers = entries(spec, "containers")
    index = next((at for at, each in enumerate(containers) if each.get("name") == CONTAINER), 0)
    if not containers or any(port.get("name") == PORT_NAME for port in entries(containers[index], "ports")):
        return template
    port: Manifest = {"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}
    containers[index] = {**containers[index], "ports": [*entries(containers[index], "ports"), port]}
    return {**template, "spec": {**spec, "containers": containers}}


def _run_policy(policy: Manifest) -> RunPolicy:
    managed_by = policy.get("managedBy")
    clean = policy.get("cleanPodPolicy")
    return RunPolicy(
        clean_pod_policy=clean if isinstance(clean, str) else "None",
        suspend=policy.get("suspend") is True,
        managed_by=managed_by if isinstance(managed_by, str) else None,
        ttl_seconds=number(policy, "ttlSecondsAfterFinished"),
        active_deadline_seconds=number(policy, "activeDeadlineSeconds"),
        backoff_limit=number(policy, "backoffLimit"),
    )


def _nproc_per_node(spec: Manifest) -> str | None:
    said = spec.get("nprocPerNode")
    if isinstance(said, str):
        return said
    return None if "nProcPerNode" in section(spec, "elasticPolicy") else "auto"


def _elastic(spec: Manifest, roles: Sequence[Role]) -> Manifest | None:
    """Return `elasticPolicy` with both bounds.

    The default of a bound is the other one, else the number of workers.
    """
    policy = spec.get("elasticPolicy")
    if not isinstance(policy, dict):
        return None
    workers = next((role.replicas for role in roles if role.name == WORKER), 0)
    low, high = number(policy, "minReplicas"), number(policy, "maxReplicas")
    given = next((each for each in (low, high) if each is not None), workers)
    return {
        **policy,
        "minReplicas": given if low is None else low,
        "maxReplicas": given if high is None else high,
    }
