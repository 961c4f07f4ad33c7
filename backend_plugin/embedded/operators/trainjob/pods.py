"""Builds pods, services and events of TrainJobs as Trainer, the JobSet and the Job controller do."""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_text_map
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import TRACKING, build_event_body, get_name
from backend_plugin.embedded.operators.base import Action, Create, JobSnapshot, Release
from backend_plugin.embedded.operators.trainjob.job_spec import DIALECT, LABELS, ROLE, TrainJobSpec

_JOBSET: Final = "jobset.sigs.k8s.io/"
_PRIORITY: Final = _JOBSET + "priority"
"""The label that the webhook of JobSet adds to a pod; priority classes are not emulated."""
_BATCH: Final = "batch.kubernetes.io/"
_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The characters in the suffix of a generated pod name."""
_INDEX_VARIABLE: Final[Manifest] = {
    "name": "JOB_COMPLETION_INDEX",
    "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{LABELS.index}']"}},
}


def build_pod(job: TrainJobSpec, index: int, restarts: int, now: datetime) -> Manifest:
    """Return the pod with this index. `restarts` is the number of restarts of the JobSet.

    `now` makes the name of a recreated pod unique.
    """
    found = get_mapping(job.template, "metadata")
    of_jobset, number = _build_jobset_labels(job, restarts), {LABELS.index: str(index)}
    of_job = {f"{prefix}job-name": job.job_name for prefix in (_BATCH, "")}
    of_job |= {f"{prefix}controller-uid": job.uid for prefix in (_BATCH, "")}
    spec = get_mapping(job.template, "spec")
    # In Kubernetes, the owner of a pod is the Job, and that of the service is the JobSet.
    return job.build_object(
        "Pod",
        f"{job.job_name}-{index}-{_build_suffix(job, index, restarts, now)}",
        {
            **spec,
            **{
                kind: [_with_index(each) for each in get_mappings(spec, kind)]
                for kind in ("initContainers", "containers")
                if kind in spec
            },
            "hostname": f"{job.job_name}-{index}",
            "subdomain": job.name,
        },
        labels={**get_text_map(found, "labels"), **of_jobset, **of_job, **number, _PRIORITY: "0"},
        annotations={**get_text_map(found, "annotations"), **of_jobset, **number},
        finalizers=[TRACKING],
    )


def build_service(job: TrainJobSpec) -> Manifest:
    """Return the headless service of a job."""
    selector = {LABELS.job_name: job.name}
    spec: Manifest = {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": True}
    return job.build_object("Service", job.name, spec)


def _build_jobset_labels(job: TrainJobSpec, restarts: int) -> Mapping[str, str]:
    """Return the values that JobSet sets both as labels and as annotations of a pod."""
    key = hashlib.sha1(f"{job.namespace}/{job.job_name}".encode(), usedforsecurity=False).hexdigest()
    values = {
        "jobset-name": job.name,
        "jobset-uid": job.uid,
        "replicatedjob-name": ROLE,
        "restart-attempt": str(restarts),
        "replicatedjob-replicas": "1",
        "global-replicas": "1",
        "job-index": "0",
        "job-key": key,
        "job-global-index": "0",
        "group-name": "default",
        "group-replicas": "1",
        "job-group-index": "0",
    }
    return {_JOBSET + name: value for name, value in values.items()}


def _build_suffix(job: TrainJobSpec, index: int, restarts: int, now: datetime) -> str:
    seed = hashlib.sha256(f"{job.uid}/{restarts}/{index}/{now.isoformat()}".encode()).digest()
    return "".join(_SUFFIX[byte % len(_SUFFIX)] for byte in seed[:5])


def _with_index(container: Manifest) -> Manifest:
    env = get_mappings(container, "env")
    if any(get_text(each, "name") == _INDEX_VARIABLE["name"] for each in env):
        return container
    return {**container, "env": [*env, _INDEX_VARIABLE]}


JOB: Final = "Job"
JOBSET: Final = "JobSet"
_KINDS: Final = {
    JOB: ("batch/v1", "job-controller"),
    JOBSET: ("jobset.x-k8s.io/v1alpha2", "jobset"),
    DIALECT.name: (DIALECT.resource.api_version, "trainjob-controller"),
}
"""The API version and the controller of each kind of object that has events."""


def build_event(
    snapshot: JobSnapshot, about: str, reason: str, message: str, *, warning: bool = False
) -> Manifest:
    """Return an event of the TrainJob, its JobSet or its Job; `about` is the kind of the object."""
    metadata, name = get_mapping(snapshot.job, "metadata"), get_name(snapshot.job)
    version, component = _KINDS[about]
    return {
        "involvedObject": {
            "apiVersion": version,
            "kind": about,
            "namespace": get_text(metadata, "namespace"),
            "name": f"{name}-{ROLE}-0" if about == JOB else name,
            "uid": get_text(metadata, "uid"),
        },
        **build_event_body(component, reason, message, warning=warning),
    }


def build_action_event(snapshot: JobSnapshot, action: Action, refusal: str | None = None) -> Manifest | None:
    """Return the event for an action; None if no event is reported.

    `refusal` is the message of the rejection; None if the action was executed.
    """
    if isinstance(action, Release):
        return None
    if action.key.kind == "Service":
        reason = "HeadlessServiceCreationFailed"
        return build_event(snapshot, JOBSET, reason, refusal, warning=True) if refusal else None
    if not isinstance(action, Create):
        return build_event(snapshot, JOB, "SuccessfulDelete", f"Deleted pod: {action.key.name}")
    if refusal is None:
        return build_event(snapshot, JOB, "SuccessfulCreate", f"Created pod: {action.key.name}")
    return build_event(snapshot, JOB, "FailedCreate", f"Error creating: {refusal}", warning=True)
