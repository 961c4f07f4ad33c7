"""Builds the pods and services of a job as the operator does."""

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
# The operator's command and its default image and number of attempts.
_INIT_IMAGE: Final = "alpine:3.10"
_WAIT: Final = (
    "err=1;for i in $(seq 100); do if nslookup {master}; then err=0 && break; fi;"
    "echo waiting for master; sleep 2; done; exit $err"
)


def labels_of_job(job: Job) -> dict[str, str]:
    """Return the labels by which the operator finds the objects of a job."""
    return {OPERATOR_NAME: OPERATOR, JOB_NAME: job.name}


def selector(job: Job, role: Role) -> str:
    """Return the label selector for one role, as text."""
    labels = {**labels_of_job(job), REPLICA_TYPE: role.label}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def pod(job: Job, role: Role, index: int, deviations: Deviations) -> Manifest:
    """Return the pod of a replica.

    Raises:
        CannotBeMade: If the operator fails to create it.
    """
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
    """Return the headless service of a replica."""
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
    """Return the ports of the training container. Of several ports with one name the last one counts."""
    containers = entries(section(role.template, "spec"), "containers")
    trainer = next((each for each in containers if each.get("name") == CONTAINER), {})
    ports = {text(port, "name"): port.get("containerPort") for port in entries(trainer, "ports")}
    return [{"name": name, "port": port} if name else {"port": port} for name, port in ports.items()]
