"""The pods and services of a job, as the operator makes them.

Lives here: manifests from a job. Does not: when they are made.
"""

from typing import Final

from backend_plugin.core.reading import entries, section, text, texts
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.controller import environment
from backend_plugin.embedded.controller.deviations import Deviations
from backend_plugin.embedded.controller.job import CONTAINER, EXIT_CODE, MASTER, NEVER, WORKER, Job, Role

API_VERSION: Final = "kubeflow.org/v1"
KIND: Final = "PyTorchJob"
OPERATOR: Final = "pytorchjob-controller"

_LABEL: Final = "training.kubeflow.org/"
OPERATOR_NAME: Final = _LABEL + "operator-name"
JOB_NAME: Final = _LABEL + "job-name"
REPLICA_TYPE: Final = _LABEL + "replica-type"
REPLICA_INDEX: Final = _LABEL + "replica-index"
JOB_ROLE: Final = _LABEL + "job-role"

INIT_CONTAINER: Final = "init-pytorch"
# The operator's own words and its defaults of image and tries.
_INIT_IMAGE: Final = "alpine:3.10"
_WAIT: Final = (
    "err=1;for i in $(seq 100); do if nslookup {master}; then err=0 && break; fi;"
    "echo waiting for master; sleep 2; done; exit $err"
)


def labels_of_job(job: Job) -> dict[str, str]:
    """By which the operator finds what belongs to a job."""
    return {OPERATOR_NAME: OPERATOR, JOB_NAME: job.name}


def selector(job: Job, role: Role) -> str:
    """The same for one role, as text."""
    labels = {**labels_of_job(job), REPLICA_TYPE: role.label}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def pod(job: Job, role: Role, index: int, deviations: Deviations) -> Manifest:
    """One replica's pod; raises `CannotBeMade` where the operator gives up."""
    metadata = section(role.template, "metadata")
    labels = {**texts(metadata, "labels"), **labels_of_job(job), **_labels_of_replica(role, index)}
    if role.name == MASTER or (job.role(MASTER) is None and index == 0):
        labels[JOB_ROLE] = "master"
    kept = {key: metadata[key] for key in ("annotations", "finalizers") if metadata.get(key)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": job.pod_name(role.name, index),
            "namespace": job.namespace,
            "labels": labels,
            **kept,
            "ownerReferences": [_owner(job)],
        },
        "spec": _pod_spec(job, role, index, deviations),
    }


def service(job: Job, role: Role, index: int) -> Manifest:
    """The headless service by which a replica is found."""
    labels = {**labels_of_job(job), **_labels_of_replica(role, index)}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": job.pod_name(role.name, index),
            "namespace": job.namespace,
            "labels": labels,
            "ownerReferences": [_owner(job)],
        },
        "spec": {"clusterIP": "None", "selector": labels, "ports": _service_ports(role)},
    }


def _labels_of_replica(role: Role, index: int) -> dict[str, str]:
    return {REPLICA_TYPE: role.label, REPLICA_INDEX: str(index)}


def _owner(job: Job) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _pod_spec(job: Job, role: Role, index: int, deviations: Deviations) -> Manifest:
    spec = section(role.template, "spec")
    variables = environment.of_replica(job, role, index, deviations)
    containers = [
        {**container, "env": [*entries(container, "env"), *variables]}
        for container in entries(spec, "containers")
    ]
    policy = NEVER if role.restart_policy == EXIT_CODE else role.restart_policy
    made: dict[str, object] = {**spec, "containers": containers, "restartPolicy": policy}
    if role.name == WORKER and job.role(MASTER) is not None:
        made["initContainers"] = [*entries(spec, "initContainers"), _init_container(job)]
    return made  # type: ignore[return-value]


def _init_container(job: Job) -> Manifest:
    return {
        "name": INIT_CONTAINER,
        "image": _INIT_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", _WAIT.format(master=job.pod_name(MASTER, 0))],
        "resources": {
            "limits": {"cpu": "100m", "memory": "20Mi"},
            "requests": {"cpu": "50m", "memory": "10Mi"},
        },
    }


def _service_ports(role: Role) -> list[Manifest]:
    """The training container's, the last of each name."""
    containers = entries(section(role.template, "spec"), "containers")
    trainer = next((each for each in containers if each.get("name") == CONTAINER), {})
    ports = {text(port, "name"): port.get("containerPort") for port in entries(trainer, "ports")}
    return [{"name": name, "port": port} if name else {"port": port} for name, port in ports.items()]
