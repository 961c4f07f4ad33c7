"""The manifests of a TrainJob and of its own TrainingRuntime, for Trainer 2.2 and later.

The runtime has a framework policy only for MPI. Trainer's policies for other frameworks reserve environment
variables and do not support elastic jobs. No object has a deadline or a time to live, because Trainer 2.3
starts a failed job again after its JobSet is deleted.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from backend_plugin.core import names
from backend_plugin.core.dialects.base import encode_storable, without_duplicate_secrets
from backend_plugin.core.dialects.trainjob import (
    initializers,
    mpi,
    named_runtime,
    options,
    policies,
    resource,
)
from backend_plugin.core.dialects.trainjob.environment import build_environment, with_environment
from backend_plugin.core.dialects.trainjob.options import JobOptions
from backend_plugin.core.errors import InvalidTask, Problem
from backend_plugin.core.job import ReplicaGroup, ReplicaRole, TrainingJob
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.train_job_options import EXCLUSIVE
from backend_plugin.core.values import Manifest, omit_empty
from kfpytorch_common.frameworks import MPI

EXCLUSIVE_TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""The annotation by which JobSet gives the Job of the nodes its own topology domain."""
_DEFAULT_RESTARTS: Final = 6
"""The number of restarts if the restart policy permits them and no limit is set, as for a Kubernetes Job."""


def build(job: TrainingJob, draft: JobDraft) -> Manifest:
    """Return the manifest of a TrainJob.

    Raises `InvalidTask` if the manifest is larger than the cluster accepts, or if a named runtime, the
    initializers or MPI do not permit a field of the pods.
    """
    metadata, pod = draft.metadata, _build_pod_template(job, draft)
    spec = get_mapping(pod, "spec")
    if problems := [*initializers.check_pod(job, spec), *mpi.check_pod(job, spec)]:
        raise InvalidTask(*problems)
    name, train = get_text(metadata, "name"), job.train_options
    reference = resource.build_runtime_reference(resource.RUNTIME.kind, name)
    if train.runtime:
        kind = train.runtime_kind or resource.CLUSTER_RUNTIME.kind
        reference = resource.build_runtime_reference(kind, train.runtime)
    annotations = {
        **get_mapping(metadata, "annotations"),
        options.ANNOTATION: options.encode(_build_options(job, draft)),
    }
    if (policy := job.run_policy.clean_pod_policy) != "None":
        annotations[names.CLEAN_POD_POLICY] = policy
    manifest: Manifest = {
        **resource.RESOURCE.type_meta,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {
            "runtimeRef": reference,
            **_build_trainer_fields(job, draft, pod, name),
            **initializers.build_field(job),
            **({"suspend": True} if draft.suspended else {}),
        },
    }
    encode_storable(manifest)
    return manifest


def _build_trainer_fields(job: TrainingJob, draft: JobDraft, pod: Manifest, name: str) -> Manifest:
    (group,) = job.groups
    if job.train_options.runtime:
        return named_runtime.build_spec(job, pod, name, _build_job_annotations(job, draft))
    resources = resource.find_trainer(get_mapping(pod, "spec")).get("resources")
    # Trainer derives a field that is absent here from the resources of the pod.
    trainer: Manifest = {"numNodes": group.replicas, "numProcPerNode": group.processes}
    return {"trainer": {**trainer, **omit_empty({"resourcesPerNode": resources})}}


def _build_job_annotations(job: TrainingJob, draft: JobDraft) -> Mapping[str, str]:
    mode, level = _get_topology(job, draft)
    return {EXCLUSIVE_TOPOLOGY: level} if mode == EXCLUSIVE else {}


def _build_pod_template(job: TrainingJob, draft: JobDraft) -> Manifest:
    """Return the pod template of the nodes, with an annotation if the job requests a topology from Kueue."""
    pod = draft.pods[ReplicaRole.NODE]
    mode, level = _get_topology(job, draft)
    if mode in ("", EXCLUSIVE):
        return pod
    metadata = get_mapping(pod, "metadata")
    annotations = {**get_mapping(metadata, "annotations"), f"kueue.x-k8s.io/podset-{mode}-topology": level}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


def _get_topology(job: TrainingJob, draft: JobDraft) -> tuple[str, str]:
    """Return the mode, such as ``required``, and the level of the job's topology; both empty if absent."""
    topology = job.train_options.topology
    return ("", "") if topology is None else (topology.get_mode(queued=draft.suspended), topology.level)


def build_probe(metadata: Mapping[str, Any]) -> Manifest:
    """Return a TrainJob with one node, for a dry run; the runtime that it names need not exist."""
    reference = resource.build_runtime_reference(resource.RUNTIME.kind, metadata["name"])
    return {
        **resource.RESOURCE.type_meta,
        "metadata": metadata,
        "spec": {"runtimeRef": reference, "trainer": {"numNodes": 1}},
    }


def build_runtime(job: TrainingJob, draft: JobDraft) -> tuple[Manifest, ...]:
    """Return the TrainingRuntime with the name of the job; none if the author names an existing runtime."""
    if job.train_options.runtime:
        return ()
    (group,) = job.groups
    metadata = draft.metadata
    name = get_text(metadata, "name")
    labels = names.build_identity_labels(job.run.output_prefix)
    annotations = omit_empty({"annotations": _build_job_annotations(job, draft)})
    of_jobset = draft.jobset_annotations if job.sources else {}
    pod = _build_pod_template(job, draft)
    runtime: Manifest = {
        **resource.RUNTIME.type_meta,
        "metadata": {
            "name": name,
            "namespace": get_text(metadata, "namespace"),
            "labels": {**labels, resource.FRAMEWORK: job.framework},
        },
        "spec": {
            "mlPolicy": {"numNodes": group.replicas, **mpi.build_policy(job, group)},
            "template": {
                "metadata": {"labels": labels, **omit_empty({"annotations": of_jobset})},
                "spec": {
                    "failurePolicy": policies.build_failure_policy(job, _count_restarts(job, group)),
                    "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
                    **initializers.build_claim_policies(job, labels),
                    "replicatedJobs": [
                        *initializers.build_jobs(job, draft),
                        *mpi.split_launcher(
                            job,
                            {
                                "name": resource.ROLE,
                                **initializers.build_dependencies(job),
                                "template": {
                                    "metadata": {"labels": {resource.ANCESTOR: "trainer"}, **annotations},
                                    "spec": {
                                        "backoffLimit": 0,
                                        **policies.build_job_policies(job),
                                        "template": _build_pod(job, group, pod, name),
                                    },
                                },
                            },
                        ),
                    ],
                },
            },
        },
    }
    _require_no_controls(encode_storable(runtime).decode())
    return (runtime,)


# Trainer stores the runtime as YAML, and its library accepts these characters only as escapes.
_CONTROLS: Final = re.compile("[\x7f-\x84\x86-\x9f\ufffe\uffff]")


def _require_no_controls(text: str) -> None:
    # Most texts need no search, which is slow: an ASCII text can contain only the first of these characters.
    if (not text.isascii() or "\x7f" in text) and (found := _CONTROLS.search(text)):
        raise InvalidTask(
            Problem(
                field="template",
                value=ascii(text[max(0, found.start() - 20) : found.end() + 20]),
                message=f"contains U+{ord(found[0]):04X}, a character that Kubeflow Trainer cannot store",
                remedy="remove it from the args, variables, labels and annotations of the task",
            )
        )


def _build_pod(job: TrainingJob, group: ReplicaGroup, pod: Manifest, name: str) -> Manifest:
    spec, env = get_mapping(pod, "spec"), build_environment(job, group, name)
    containers = [
        _with_named_ports(with_environment(each, env))
        for each in get_mappings(resource.with_installer(spec, job.train_options.packages), "containers")
    ]
    before = [_with_named_ports(each) for each in get_mappings(spec, "initContainers")]
    more = omit_empty({"initContainers": before})
    whole = {**spec, "restartPolicy": "Never", "containers": containers, **more}
    return {**pod, "spec": without_duplicate_secrets(initializers.add_volume(job, whole))}


def _with_named_ports(container: Manifest) -> Manifest:
    """Return the container; each of its ports has a name, and no port has two entries.

    Trainer merges ports by name, and the CRD rejects two entries for one port.
    """
    ports: dict[str, Manifest] = {}
    for port in get_mappings(container, "ports"):
        protocol = get_text(port, "protocol") or "TCP"
        number = f"port-{port.get('containerPort')}"
        key = number if protocol == "TCP" else f"{number}-{protocol.lower()}"
        ports[key] = {**port, "name": port.get("name") or key}
    return {**container, "ports": [*ports.values()]} if ports else container


def _build_options(job: TrainingJob, draft: JobDraft) -> JobOptions:
    named = bool(job.train_options.runtime)
    return JobOptions(
        min_nodes=job.elastic.min_replicas if job.elastic else None,
        max_restarts=0 if named else _count_restarts(job, job.groups[0]),
        named_runtime=named,
        launcher=job.framework == MPI and not named,
        max_disruptions=draft.max_disruptions,
        ttl_seconds=draft.ttl_seconds,
        succeeded_indexes=job.train_options.succeeded_indexes,
    )


def _count_restarts(job: TrainingJob, group: ReplicaGroup) -> int:
    """Return `maxRestarts` of the JobSet: how many times all nodes are restarted together after a failure."""
    for limit in (job.train_options.max_restarts, group.num_retries, job.run_policy.backoff_limit):
        if limit is not None:
            return limit
    return 0 if group.restart_policy == "Never" else _DEFAULT_RESTARTS
