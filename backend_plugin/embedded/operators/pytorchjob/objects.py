"""Builds the pods, the services and the events of a PyTorchJob as the training operator does."""

from collections.abc import Iterator, Mapping
from typing import Final

from backend_plugin.core.dialects.pytorchjob.resource import list_added_containers
from backend_plugin.core.job import ReplicaRole
from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text, get_text_map
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.embedded.objects import build_event_body, get_name, is_active
from backend_plugin.embedded.operators.base import Action, Create, JobSnapshot
from backend_plugin.embedded.operators.pytorchjob.job_spec import (
    CONTAINER,
    DIALECT,
    EXIT_CODE,
    MASTER,
    NEVER,
    PORT,
    WORKER,
    JobSpec,
    OperatorReplicaSpec,
)

OPERATOR: Final = "pytorchjob-controller"
LABELS: Final = DIALECT.labels
_OPERATOR_NAME: Final = "training.kubeflow.org/operator-name"
_JOB_ROLE: Final = "training.kubeflow.org/job-role"

# The command of the init container, and its default image and number of attempts.
_INIT_IMAGE: Final = "alpine:3.10"
_WAIT: Final = (
    "err=1;for i in $(seq 100); do if nslookup {master}; then err=0 && break; fi;"
    "echo waiting for master; sleep 2; done; exit $err"
)
_BACKEND: Final = "c10d"


def build_job_labels(job: JobSpec) -> dict[str, str]:
    """Return the labels by which the operator finds the objects of a job."""
    return {_OPERATOR_NAME: OPERATOR, LABELS.job_name: job.name}


def format_selector(job: JobSpec, role: OperatorReplicaSpec) -> str:
    """Return the label selector for one role, as text."""
    labels = {**build_job_labels(job), LABELS.role: role.label}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def build_pod(job: JobSpec, role: OperatorReplicaSpec, index: int) -> Manifest:
    """Return the pod of a replica, as the training-operator builds it."""
    metadata = get_mapping(role.template, "metadata")
    labels = {
        **get_text_map(metadata, "labels"),
        **build_job_labels(job),
        **_build_replica_labels(role, index),
    }
    if role.name == MASTER or (job.find_role(MASTER) is None and index == 0):
        labels[_JOB_ROLE] = "master"
    copied = {key: metadata[key] for key in ("annotations", "finalizers") if metadata.get(key)}
    name, spec = job.build_pod_name(role.name, index), _build_pod_spec(job, role, index)
    return job.build_object("Pod", name, spec, labels=labels, **copied)


def build_service(job: JobSpec, role: OperatorReplicaSpec, index: int) -> Manifest:
    """Return the headless service of a replica."""
    labels = {**build_job_labels(job), **_build_replica_labels(role, index)}
    ports = [
        {"name": port, "port": number} if port else {"port": number}
        for port, number in _map_ports(role).items()
    ]
    spec: Manifest = {"clusterIP": "None", "selector": labels, "ports": ports}
    return job.build_object("Service", job.build_pod_name(role.name, index), spec, labels=labels)


def _build_replica_labels(role: OperatorReplicaSpec, index: int) -> dict[str, str]:
    return {LABELS.role: role.label, LABELS.index: str(index)}


def _build_pod_spec(job: JobSpec, role: OperatorReplicaSpec, index: int) -> Manifest:
    spec = get_mapping(role.template, "spec")
    variables = _build_variables(job, role, index)
    containers = [
        {**container, "env": [*get_mappings(container, "env"), *variables]}
        for container in get_mappings(spec, "containers")
    ]
    policy = NEVER if role.restart_policy == EXIT_CODE else role.restart_policy
    wait: Manifest = {
        "image": _INIT_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", _WAIT.format(master=job.build_pod_name(MASTER, 0))],
    }
    added = list_added_containers(ReplicaRole(role.name), [ReplicaRole(each.name) for each in job.roles])
    before = [*get_mappings(spec, "initContainers"), *({**each, **wait} for each in added)]
    return {
        **spec,
        **({"initContainers": before} if before else {}),
        "containers": containers,
        "restartPolicy": policy,
    }


def _map_ports(role: OperatorReplicaSpec) -> Mapping[str, JsonValue]:
    """Return the ports of the training container by name. For equal names, the last port is used."""
    containers = get_mappings(role.template, "spec", "containers")
    trainer = next((each for each in containers if each.get("name") == CONTAINER), {})
    return {get_text(port, "name"): port.get("containerPort") for port in get_mappings(trainer, "ports")}


def _build_variables(job: JobSpec, role: OperatorReplicaSpec, index: int) -> list[Manifest]:
    pairs = [
        ("PYTHONUNBUFFERED", "1"),
        *_build_master_variables(job, role, index),
        ("PET_NPROC_PER_NODE", job.nproc_per_node),
    ]
    if job.elastic is None:
        pairs.append(("PET_NNODES", str(job.replicas)))
    else:
        pairs += _build_elastic_variables(job, role, job.elastic)
    return [{"name": name, "value": value} for name, value in pairs]


def _build_master_variables(job: JobSpec, role: OperatorReplicaSpec, index: int) -> list[tuple[str, str]]:
    master = job.find_role(MASTER)
    if master is None:
        return []
    port, address = str(_map_ports(master).get(PORT.name, PORT.number)), job.build_pod_name(MASTER, 0)
    rank = str(index + 1 if role.name == WORKER else index)
    processes = int(job.nproc_per_node) if job.nproc_per_node.isdecimal() else 1  # It may be ``auto``.
    return [
        ("MASTER_PORT", port),
        ("PET_MASTER_PORT", port),
        ("MASTER_ADDR", address),
        ("PET_MASTER_ADDR", address),
        ("WORLD_SIZE", str(job.replicas * processes)),
        ("RANK", rank),
        ("PET_NODE_RANK", rank),
    ]


def _build_elastic_variables(
    job: JobSpec, role: OperatorReplicaSpec, policy: Manifest
) -> list[tuple[str, str]]:
    port = _map_ports(role).get(PORT.name, PORT.number)
    optional = {"PET_MAX_RESTARTS": "maxRestarts", "PET_RDZV_ID": "rdzvId"}
    return [
        ("PET_RDZV_ENDPOINT", f"{job.build_pod_name(WORKER, 0)}:{port}"),
        ("PET_RDZV_BACKEND", str(policy.get("rdzvBackend", _BACKEND))),
        ("PET_NNODES", f"{policy['minReplicas']}:{policy['maxReplicas']}"),
        *((name, str(policy[field])) for name, field in optional.items() if field in policy),
    ]


def build_action_event(_: JobSnapshot, action: Action, refusal: str | None = None) -> Manifest:
    """Return the event for an executed action, or for a rejected action with the message `refusal`."""
    is_new, key = isinstance(action, Create), action.key
    # The operator reports the deletion of a job with the event reason for the deletion of a pod.
    reason = type(action).__name__ + ("Pod" if key.kind == DIALECT.name else key.kind)
    if refusal is not None:
        message = f"Error {'creating' if is_new else 'deleting'}: {refusal}"
        return build_event_body(OPERATOR, f"Failed{reason}", message, warning=True)
    what = "job" if key.kind == DIALECT.name else key.kind.lower()
    message = f"{'Created' if is_new else 'Deleted'} {what}: {key.name}"
    return build_event_body(OPERATOR, f"Successful{reason}", message)


def iter_faulty_pod_events(pod: Manifest) -> Iterator[Manifest]:
    """Yield events for the failed and the waiting containers of an active pod."""
    status = get_mapping(pod, "status")
    containers = get_mappings(status, "containerStatuses") or get_mappings(status, "initContainerStatuses")
    for container in containers if is_active(pod) else ():
        yield from _iter_container_events(get_name(pod), container)


def _iter_container_events(pod: str, container: Manifest) -> Iterator[Manifest]:
    prefix = f"Error pod {pod} container {get_text(container, 'name')}"
    terminated = get_mapping(container, "state", "terminated")
    code = get_int(terminated, "exitCode")
    if code:
        message = f"{prefix} exitCode: {code} terminated message: {get_text(terminated, 'message')}"
        yield build_event_body(OPERATOR, get_text(terminated, "reason"), message, warning=True)
    waiting = get_mapping(container, "state", "waiting")
    if get_text(waiting, "message"):
        message = f"{prefix} waiting message: {get_text(waiting, 'message')}"
        yield build_event_body(OPERATOR, get_text(waiting, "reason"), message, warning=True)
