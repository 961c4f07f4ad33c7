"""The PyTorchJob manifest. It has only fields that training-operator 1.7 to 1.9 interpret in the same way."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from backend_plugin.core.dialects.base import encode_storable, without_duplicate_secrets
from backend_plugin.core.dialects.pytorchjob.reader import ENDING_DEADLINE
from backend_plugin.core.dialects.pytorchjob.resource import CONTAINER, PORT, REPLICA_SPECS, RESOURCE
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import ReplicaGroup, TrainingJob
from backend_plugin.core.names import CLEAN_POD_POLICY
from backend_plugin.core.observed import Job
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_mapping, get_mappings
from backend_plugin.core.values import Manifest, list_repeated

# With `Always` a replica that succeeds would be restarted, so that the job would never end.
_RESTART_POLICIES: Final = {"Never": "Never", "OnFailure": "OnFailure", "Always": "OnFailure"}
END: Final[Manifest] = {
    "runPolicy": {"activeDeadlineSeconds": ENDING_DEADLINE, "cleanPodPolicy": "Running", "suspend": False}
}
"""The change of the spec that ends a job with pods: at the deadline, the operator deletes all its pods."""
SUSPEND: Final[Manifest] = {"runPolicy": {"suspend": True}}


def build(job: TrainingJob, draft: JobDraft) -> Manifest:
    """Return the manifest of a PyTorchJob; raise `InvalidTask` if it is larger than the cluster accepts."""
    replicas = {group.role.value: _build_replica_spec(group, draft.pods[group.role]) for group in job.groups}
    metadata, policy = draft.metadata, job.run_policy.clean_pod_policy
    if job.elastic and policy != "None":
        annotations = {**get_mapping(metadata, "annotations"), CLEAN_POD_POLICY: policy}
        metadata = {**metadata, "annotations": annotations}
    manifest: Manifest = {
        **RESOURCE.type_meta,
        "metadata": metadata,
        "spec": {
            REPLICA_SPECS: replicas,
            "runPolicy": _build_run_policy(job, draft),
            **_build_elastic_fields(job, draft.metadata),
        },
    }
    encode_storable(manifest)
    return manifest


def build_probe(metadata: Mapping[str, Any]) -> Manifest:
    """Return the manifest of a PyTorchJob with one replica, for a dry run."""
    template: Manifest = {"spec": {"containers": [{"name": CONTAINER, "image": "probe"}]}}
    replica: Manifest = {"replicas": 1, "restartPolicy": "Never", "template": template}
    return {**RESOURCE.type_meta, "metadata": metadata, "spec": {REPLICA_SPECS: {"Master": replica}}}


def _build_replica_spec(group: ReplicaGroup, pod: Manifest) -> Manifest:
    # The operator overwrites the restart policy of the pod with the one of the role.
    spec = {key: value for key, value in get_mapping(pod, "spec").items() if key != "restartPolicy"}
    containers = [_with_named_ports(each) for each in get_mappings(spec, "containers")]
    return {
        "replicas": group.replicas,
        "restartPolicy": _RESTART_POLICIES[group.restart_policy],
        "template": {**pod, "spec": without_duplicate_secrets({**spec, "containers": containers})},
    }


def _with_named_ports(container: Manifest) -> Manifest:
    # Each container port becomes a port of the service, which requires names if there is more than one.
    ports = get_mappings(container, "ports")
    if container.get("name") != CONTAINER or not ports:
        return container
    is_added = _is_port_added(ports)
    return {**container, "ports": [_with_port_name(port, is_added=is_added) for port in ports]}


def _is_port_added(ports: Sequence[Mapping[str, Any]]) -> bool:
    """True if the operator adds its own port to a container, because no port in `ports` has its name."""
    return all(port.get("name") != PORT.name for port in ports)


def _with_port_name(port: Manifest, *, is_added: bool) -> Manifest:
    number = port.get("containerPort")
    default = PORT.name if is_added and number == PORT.number else f"port-{number}"
    return {**port, "name": port.get("name") or default}


def _build_run_policy(job: TrainingJob, draft: JobDraft) -> Manifest:
    policy = job.run_policy
    fields: Manifest = {
        "ttlSecondsAfterFinished": draft.ttl_seconds,
        "activeDeadlineSeconds": policy.active_deadline_seconds,
        "backoffLimit": policy.backoff_limit,
        "schedulingPolicy": draft.scheduling_policy or None,
        "suspend": draft.suspended or None,
    }
    # The operator considers an elastic job complete when its first replica completes. With another policy it
    # would then kill rank 0, which may still write the outputs.
    clean = "None" if job.elastic else policy.clean_pod_policy
    return {"cleanPodPolicy": clean, **{key: value for key, value in fields.items() if value is not None}}


def _build_elastic_fields(job: TrainingJob, job_metadata: Manifest) -> Manifest:
    """Return the fields of the spec that configure torch's rendezvous; empty if the job is not elastic."""
    if job.elastic is None:
        return {}
    return {
        # The field of the same name within elasticPolicy is deprecated and does not set WORLD_SIZE. Both
        # accept only a string.
        "nprocPerNode": str(job.nproc_per_node),
        "elasticPolicy": {
            "minReplicas": job.elastic.min_replicas,
            "maxReplicas": job.elastic.max_replicas,
            "rdzvBackend": job.elastic.rdzv_backend,
            "rdzvId": job_metadata["name"],
            "maxRestarts": job.elastic.max_restarts,
        },
    }


def build_stop_spec(job: Job) -> Manifest:
    """Return the change of the spec after which the operator restarts and deletes no pod of the job.

    The job then ends when its pods have ended.
    """
    roles = {group.role.capitalize(): {"restartPolicy": "Never"} for group in job.groups}
    # With a backoff limit of 0, the operator would delete all pods after the first failure.
    return {"runPolicy": {"cleanPodPolicy": "None", "backoffLimit": None}, REPLICA_SPECS: roles}


def check_ports(container: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Yield a problem for each port that conflicts with another one in the replica's service.

    The operator makes every port of the container a TCP port of the service, so a UDP port and a TCP
    port with the same number conflict.
    """
    path = f"{path}.ports"
    ports = container.get("ports", ())
    for name in list_repeated([each["name"] for each in ports if each.get("name")]):
        yield build_problem(path, name, "is the name of two ports", "rename one of them")
    for number in list_repeated([each.get("containerPort", 0) for each in ports]):
        remedy = "leave one of the two out: each is a TCP port of the replica's service"
        yield build_problem(path, number, "is the number of two ports", remedy)
    if _conflicts_with_operator_port(ports):
        remedy = f"name it {PORT.name}, or use another number"
        yield build_problem(path, PORT.number, "is the port with which replicas find each other", remedy)


def _conflicts_with_operator_port(ports: Sequence[Mapping[str, Any]]) -> bool:
    named = [each for each in ports if each.get("name")]
    return _is_port_added(ports) and any(each.get("containerPort") == PORT.number for each in named)
