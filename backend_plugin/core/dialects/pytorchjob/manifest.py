"""The PyTorchJob manifest and the changes that end a job, for training-operator 1.7 to 1.9.

The manifest contains only fields that all these releases interpret in the same way.
docs/reference/differences-from-the-go-plugin.md lists the differences from Flyte's own plugin.
"""

from collections.abc import Mapping
from typing import Any, Final

from backend_plugin.core.dialects.pod_specs import encode_storable, without_duplicate_secrets
from backend_plugin.core.dialects.pytorchjob.reader import ENDING_DEADLINE
from backend_plugin.core.dialects.pytorchjob.resource import CONTAINER, PORT, REPLICA_SPECS, RESOURCE
from backend_plugin.core.job import ReplicaGroup, TrainingJob
from backend_plugin.core.names import CLEAN_POD_POLICY
from backend_plugin.core.observed import Job
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.values import JsonValue, Manifest

# With `Always` a replica that succeeds would be restarted, so that the job would never end.
_RESTART_POLICIES: Final = {"Never": "Never", "OnFailure": "OnFailure", "Always": "OnFailure"}
# Each container port becomes a port of the service, which requires names if there is more than one. The
# operator adds its own port to a container without a port of that name.
_UNNAMED_PORT: Final = "port-{number}"
END: Final[Manifest] = {
    "runPolicy": {"activeDeadlineSeconds": ENDING_DEADLINE, "cleanPodPolicy": "Running", "suspend": False}
}
"""The change that ends a job with pods. The operator deletes all pods of a job that reaches its deadline."""
SUSPEND: Final[Manifest] = {"runPolicy": {"suspend": True}}


def build(job: TrainingJob, draft: JobDraft) -> Manifest:
    """Return the PyTorchJob.

    Raises:
        InvalidTask: If the manifest is larger than the cluster accepts.
    """
    manifest = _build_manifest(job, draft)
    encode_storable(manifest)
    return manifest


def build_probe(metadata: Mapping[str, Any]) -> Manifest:
    """Return a job with one replica, for a dry run."""
    template: Manifest = {"spec": {"containers": [{"name": CONTAINER, "image": "probe"}]}}
    replica: Manifest = {"replicas": 1, "restartPolicy": "Never", "template": template}
    return {
        "apiVersion": RESOURCE.api_version,
        "kind": RESOURCE.kind,
        "metadata": metadata,
        "spec": {REPLICA_SPECS: {"Master": replica}},
    }


def _build_manifest(job: TrainingJob, draft: JobDraft) -> Manifest:
    return {
        "apiVersion": RESOURCE.api_version,
        "kind": RESOURCE.kind,
        "metadata": _with_clean_pod_policy(job, draft.metadata),
        "spec": {
            REPLICA_SPECS: {
                group.role.value: _build_replica_spec(group, draft.pods[group.role]) for group in job.groups
            },
            "runPolicy": _build_run_policy(job, draft),
            **_build_elastic_fields(job, draft.metadata),
        },
    }


def _build_replica_spec(group: ReplicaGroup, pod: Manifest) -> Manifest:
    return {
        "replicas": group.replicas,
        "restartPolicy": _RESTART_POLICIES[group.restart_policy],
        "template": {**pod, "spec": _build_pod_spec(pod)},
    }


def _build_pod_spec(pod: Manifest) -> Manifest:
    """Return the pod spec with a name for each port, without fields that the operator would overwrite."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return {}
    containers = spec.get("containers")
    fields = without_duplicate_secrets({key: value for key, value in spec.items() if key != "restartPolicy"})
    if not isinstance(containers, list):
        return fields
    return {**fields, "containers": [_with_named_ports(container) for container in containers]}


def _with_named_ports(container: JsonValue) -> JsonValue:
    if not isinstance(container, dict) or container.get("name") != CONTAINER:
        return container
    ports = container.get("ports")
    if not isinstance(ports, list):
        return container
    names = [port.get("name") for port in ports if isinstance(port, dict)]
    taken = PORT.name in names
    return {**container, "ports": [_with_port_name(port, taken=taken) for port in ports]}


def _with_port_name(port: JsonValue, *, taken: bool) -> JsonValue:
    if not isinstance(port, dict) or port.get("name"):
        return port
    number = port.get("containerPort")
    is_operators = number == PORT.number and not taken
    return {**port, "name": PORT.name if is_operators else _UNNAMED_PORT.format(number=number)}


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


def _with_clean_pod_policy(job: TrainingJob, job_metadata: Manifest) -> Manifest:
    annotations = job_metadata.get("annotations")
    if not job.elastic or job.run_policy.clean_pod_policy == "None" or not isinstance(annotations, dict):
        return job_metadata
    return {**job_metadata, "annotations": {**annotations, CLEAN_POD_POLICY: job.run_policy.clean_pod_policy}}


def _build_elastic_fields(job: TrainingJob, job_metadata: Manifest) -> Manifest:
    """Return the rendezvous fields of an elastic job; the operator itself configures other jobs."""
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
    """Return the spec change after which the job ends when its pods end, without restarts or deleted pods."""
    roles = {group.role.capitalize(): {"restartPolicy": "Never"} for group in job.groups}
    # With a backoff limit of 0, the operator would delete all pods after the first failure.
    return {"runPolicy": {"cleanPodPolicy": "None", "backoffLimit": None}, REPLICA_SPECS: roles}
