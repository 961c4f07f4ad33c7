"""The initializers of a TrainJob, which load its data set and its model before the nodes are created."""

from collections.abc import Iterator, Sequence
from typing import Final

from backend_plugin.core import names
from backend_plugin.core.dialects.trainjob import resource
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import ReplicaRole, TrainingJob
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_mapping, get_mappings
from backend_plugin.core.train_job_options import DISRUPTION, DataSource
from backend_plugin.core.values import JsonValue, Manifest, omit_empty, pick_fields
from kfpytorch_common.data_sources import PATHS, WORKSPACE

VOLUME: Final = "initializer"
"""The name of the volume with the loaded files; Trainer requires that each initializer mounts it."""
_OF_POD: Final = (
    *("serviceAccountName", "imagePullSecrets", "securityContext", "nodeSelector", "tolerations"),
    *("runtimeClassName", "dnsPolicy", "dnsConfig"),
)
"""The fields of a node's pod spec that an initializer copies, to have the same identity and placement."""
_DISRUPTED: Final = [{"type": DISRUPTION, "status": "True"}]


def build_field(job: TrainingJob) -> Manifest:
    """Return the field `initializer` of a TrainJob's spec; {} if the job has no data set and no model."""
    return omit_empty({"initializer": {kind: _build_source(each) for kind, each in job.sources.items()}})


def _build_source(source: DataSource) -> Manifest:
    env: list[JsonValue] = [{"name": name, "value": value} for name, value in sorted(source.env.items())]
    secret = {"secretRef": {"name": source.secret}} if source.secret else {}
    return {"storageUri": source.uri, **omit_empty({"env": env}), **secret}


def build_initializer_rules(job: TrainingJob) -> list[Manifest]:
    """Return rules for the failure policy, by which a failed initializer fails the job without a restart."""
    if not job.sources:
        return []
    roles: list[JsonValue] = [resource.INITIALIZERS[kind] for kind in job.sources]
    return [
        {
            "name": VOLUME,
            "action": "FailJobSet",
            "onJobFailureReasons": ["BackoffLimitExceeded"],
            "targetReplicatedJobs": roles,
        }
    ]


def build_jobs(job: TrainingJob, draft: JobDraft) -> list[Manifest]:
    """Return the replicated jobs of the initializers, which run before the replicated job of the nodes."""
    spec = get_mapping(draft.pods[ReplicaRole.NODE], "spec")
    return [
        {
            "name": resource.INITIALIZERS[kind],
            "template": {
                "metadata": {"labels": {resource.ANCESTOR: resource.INITIALIZERS[kind]}},
                "spec": {
                    "backoffLimit": 0,
                    # The Job controller replaces a disrupted pod.
                    "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": _DISRUPTED}]},
                    "template": {
                        "metadata": _build_pod_metadata(job),
                        "spec": _build_pod_spec(job, draft, kind, spec),
                    },
                },
            },
        }
        for kind in job.sources
    ]


def build_patches(job: TrainingJob, spec: Manifest) -> list[JsonValue]:
    """Return the patches for the initializers of a training runtime that the task's author names.

    The patches add the labels by which the server watches the pods, and the task's service account.
    """
    account = pick_fields(spec, ("serviceAccountName",))
    template: Manifest = {"metadata": _build_pod_metadata(job), "spec": account}
    return [
        {"name": resource.INITIALIZERS[kind], "template": {"spec": {"template": template}}}
        for kind in job.sources
    ]


def _build_pod_metadata(job: TrainingJob) -> Manifest:
    """Return the metadata of an initializer's pod, without gang labels: no initializer is in the gang."""
    run = job.run
    labels = {**run.labels, **names.build_identity_labels(run.output_prefix)}
    return omit_empty({"labels": labels, "annotations": run.annotations})


def _build_pod_spec(job: TrainingJob, draft: JobDraft, kind: str, spec: Manifest) -> Manifest:
    container: Manifest = {
        "name": resource.INITIALIZERS[kind],
        "image": draft.initializer_images.get(kind, ""),
        "resources": {"requests": draft.initializer_requests},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": VOLUME, "mountPath": WORKSPACE}],
        **pick_fields(resource.find_trainer(spec), ("securityContext",)),
    }
    return {
        **pick_fields(spec, _OF_POD),
        "restartPolicy": "Never",
        "containers": [container],
        **_build_volumes(job, ()),
    }


def add_volume(job: TrainingJob, spec: Manifest) -> Manifest:
    """Return a node's pod spec, in which the training container mounts the loaded data set and model."""
    if not job.sources:
        return spec
    mounts = [{"name": VOLUME, "mountPath": PATHS[kind], "subPath": kind} for kind in job.sources]
    trainer = resource.find_trainer(spec)
    containers = [
        {**each, "volumeMounts": [*get_mappings(each, "volumeMounts"), *mounts]} if each is trainer else each
        for each in get_mappings(spec, "containers")
    ]
    return {**spec, "containers": containers, **_build_volumes(job, get_mappings(spec, "volumes"))}


def _build_volumes(job: TrainingJob, others: Sequence[Manifest]) -> Manifest:
    """Return the field `volumes` of a pod: `others`, and a volume for the claim that the task's author names.

    If the author names no claim, JobSet creates a claim and adds its volume.
    """
    claim = job.train_options.storage.claim
    own: list[Manifest] = [{"name": VOLUME, "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    return omit_empty({"volumes": [*others, *own]})


def build_claim_policies(job: TrainingJob, labels: Manifest) -> Manifest:
    """Return `volumeClaimPolicies`, by which JobSet creates a PersistentVolumeClaim for the loaded files.

    The result is {} if the job has no initializers, or if the task's author names an existing claim.
    """
    storage = job.train_options.storage
    if not job.sources or storage.claim:
        return {}
    (group,) = job.groups
    claim: Manifest = {
        "accessModes": ["ReadWriteOnce" if group.replicas == 1 else "ReadWriteMany"],
        "resources": {"requests": {"storage": storage.size}},
        **omit_empty({"storageClassName": storage.storage_class}),
    }
    template: Manifest = {"metadata": {"name": VOLUME, "labels": labels}, "spec": claim}
    policy: Manifest = {"templates": [template], "retentionPolicy": {"whenDeleted": "Delete"}}
    return {"volumeClaimPolicies": [policy]}


def build_dependencies(job: TrainingJob) -> Manifest:
    """Return `dependsOn`, by which the nodes start only after all initializers have completed."""
    needed = [{"name": resource.INITIALIZERS[kind], "status": "Complete"} for kind in job.sources]
    return omit_empty({"dependsOn": needed})


def check_pod(job: TrainingJob, spec: Manifest) -> Iterator[Problem]:
    """Yield a problem for each volume or mount of a node that conflicts with the initializers' volume."""
    if not job.sources:
        return
    for path, value in resource.iter_volume_conflicts(spec, {VOLUME}, {PATHS[kind] for kind in job.sources}):
        message = "is the directory of the data set or the model"
        if value == VOLUME:
            message = "is the volume of the initializers"
        yield build_problem(path, value, message, "use another one in the pod template")
