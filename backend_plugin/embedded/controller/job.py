"""A stored PyTorchJob with the operator's defaults, which it applies in memory only.

Lives here: reading a job's spec. Does not: what is made of it.
"""

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
"""The policies under which anything is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One entry of `pytorchReplicaSpecs`."""

    name: str
    replicas: int
    restart_policy: str
    template: Manifest

    @property
    def label(self) -> str:
        """The name as labels and pods' names have it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """`spec.runPolicy`; None where nothing is said."""

    clean_pod_policy: str
    suspend: bool
    managed_by: str | None
    ttl_seconds: int | None
    active_deadline_seconds: int | None
    backoff_limit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the controller knows of a job beside its status."""

    manifest: Manifest
    roles: tuple[Role, ...]
    """In the order in which they are visited."""
    run_policy: RunPolicy
    nproc_per_node: str | None
    elastic: Manifest | None

    @property
    def name(self) -> str:
        """The job's."""
        return text(section(self.manifest, "metadata"), "name")

    @property
    def namespace(self) -> str:
        """The job's, and that of all it owns."""
        return text(section(self.manifest, "metadata"), "namespace")

    @property
    def uid(self) -> str:
        """By which it is told from other jobs of its name."""
        return text(section(self.manifest, "metadata"), "uid")

    @property
    def replicas(self) -> int:
        """Of all roles."""
        return sum(role.replicas for role in self.roles)

    @property
    def is_deleted(self) -> bool:
        """Whether it waits only for what it owns to be gone."""
        return bool(section(self.manifest, "metadata").get("deletionTimestamp"))

    def role(self, name: str) -> Role | None:
        """The role of that name, if the job has it."""
        return next((role for role in self.roles if role.name == name), None)

    def pod_name(self, role: str, index: int) -> str:
        """Of a replica's pod, and of its service."""
        return f"{self.name}-{role.lower()}-{index}"


def read(manifest: Manifest, order: Sequence[str]) -> Job:
    """The job, its roles in that order; what `order` does not name is left out."""
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
    """The template, the training container with the port by which replicas find each other."""
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
    """`elasticPolicy` with both bounds: a missing one is the other, both missing are the workers' number."""
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
