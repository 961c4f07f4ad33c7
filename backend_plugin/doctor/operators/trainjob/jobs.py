"""Builds the TrainJobs of the doctor, and the pods that Kubeflow Trainer and JobSet create for them.

The pod template comes from the TrainingRuntime that the connector creates. For a task that names a
training runtime, the pods lack what that runtime adds, because the doctor does not read the runtime.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import structs

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.dialects.trainjob import options
from backend_plugin.core.dialects.trainjob.resource import ROLE, build_host_name
from backend_plugin.core.plan import Plan
from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_text_map
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.doctor.facts import RolePods
from backend_plugin.doctor.operators.base import KEPT_SECONDS
from backend_plugin.embedded.objects import merge_patch, with_section

_DIALECT: Final = DIALECTS["TrainJob"]
_AGENT_RESTARTS: Final = "PET_MAX_RESTARTS"


def build_role_pods(job: Manifest, prerequisites: Sequence[Manifest]) -> Sequence[RolePods]:
    """Build the pods of a TrainJob's nodes, without the labels that the Job controller adds.

    The pod template comes from the TrainingRuntime in `prerequisites`, or else from the job.
    """
    read, job_options = _DIALECT.read(job), _read_options(job)
    ((role, nodes),) = ((each.role, each.replicas) for each in read.groups)
    template = _find_template(job, prerequisites)
    metadata, labels = get_mapping(template, "metadata"), _DIALECT.labels
    own = {labels.job_name: read.name, labels.role: role, labels.index: "0", labels.attempt: "0"}
    pod: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{build_host_name(read.name, role, 0)}-00000",
            "namespace": read.namespace,
            "labels": {**get_text_map(metadata, "labels"), **own},
            "annotations": {**get_text_map(metadata, "annotations"), labels.index: "0"},
        },
        "spec": {
            **get_mapping(template, "spec"),
            "hostname": build_host_name(read.name, role, 0),
            "subdomain": read.name,
        },
    }
    return [RolePods(name=role, count=nodes, needed=job_options.min_nodes or nodes, pod=pod)]


def _find_template(job: Manifest, prerequisites: Sequence[Manifest]) -> Manifest:
    """Return the pod template of a job.

    If the task names a training runtime, the template contains only the fields that the job sets.
    """
    for runtime in prerequisites:
        return _find_pod_template(runtime)
    (patch,) = get_mappings(job, "spec", "runtimePatches")
    template = _find_pod_template({"spec": get_mapping(patch, "trainingRuntimeSpec")})
    trainer = get_mapping(job, "spec", "trainer")
    container: Manifest = {
        "name": _DIALECT.container,
        **{key: trainer[key] for key in ("image", "command", "args", "env") if key in trainer},
        "resources": get_mapping(trainer, "resourcesPerNode"),
    }
    spec = get_mapping(template, "spec")
    # The patch has at most one container.
    for patched in get_mappings(spec, "containers"):
        container = {**container, **patched}
    return {**template, "spec": {**spec, "containers": [container], "restartPolicy": "Never"}}


def list_secrets(job: Manifest) -> Sequence[str]:
    """Return the names of the Secrets with which the initializers load the data set and the model."""
    sources = get_mapping(job, "spec", "initializer")
    return [get_text(sources, kind, "secretRef", "name") for kind in sources]


def build_invalid_job(namespace: str) -> Manifest:
    """Return a job that Trainer's webhook rejects, because its TrainingRuntime does not exist."""
    return _DIALECT.build_probe({"name": "kfpytorch-doctor", "namespace": namespace})


def build_trial(planned: Plan, change_template: Callable[[Manifest], Manifest], seconds: int) -> Plan:
    """Return the plan of a trial job: it is never restarted, and the kubelet ends its pods after `seconds`.

    `change_template` returns the changed pod template of the job. The pods have the deadline, because a
    deadline of the TrainJob would delete them with their logs. If the doctor does not delete the ended job,
    a connector deletes it after `KEPT_SECONDS`, because a TrainJob has no TTL.

    If the task names a training runtime, the restart limit and the deadlines of that runtime apply instead,
    and only the command of the nodes changes.
    """
    job_options = structs.replace(
        _read_options(planned.job), max_restarts=0, max_disruptions=0, ttl_seconds=KEPT_SECONDS
    )
    patch: dict[str, JsonValue] = {
        "metadata": {"annotations": {options.ANNOTATION: options.encode(job_options)}}
    }
    if not planned.prerequisites:  # The limits of a named training runtime apply.
        (container,) = get_mappings(change_template(_find_template(planned.job, ())), "spec", "containers")
        patch["spec"] = {"trainer": {"args": None, "command": container["command"]}}
    return structs.replace(
        planned,
        job=merge_patch(planned.job, patch),
        prerequisites=tuple(
            _build_trial_runtime(each, change_template, seconds) for each in planned.prerequisites
        ),
    )


def _build_trial_runtime(
    runtime: Manifest, change_template: Callable[[Manifest], Manifest], seconds: int
) -> Manifest:
    def change(replicated: Manifest) -> Manifest:
        pod = change_template(get_mapping(replicated, "template", "spec", "template"))
        # Without a podFailurePolicy, the loss of a Kubernetes node fails the job.
        job: Manifest = {"podFailurePolicy": None, "template": _with_limits(pod, seconds)}
        return merge_patch(replicated, {"template": {"spec": job}})

    jobs: Manifest = {
        "failurePolicy": {"maxRestarts": 0, "restartStrategy": None, "rules": None},
        "replicatedJobs": [*map(change, _list_replicated_jobs(runtime))],
    }
    return merge_patch(runtime, {"spec": {"template": {"spec": jobs}}})


def _with_limits(pod: Manifest, seconds: int) -> Manifest:
    containers = [
        {
            **each,
            "env": [
                {**one, "value": "0"} if one.get("name") == _AGENT_RESTARTS else one
                for one in get_mappings(each, "env")
            ],
        }
        for each in get_mappings(pod, "spec", "containers")
    ]
    return with_section(pod, "spec", containers=containers, activeDeadlineSeconds=seconds)


def _find_pod_template(runtime: Manifest) -> Manifest:
    """Return the pod template of the training nodes in a runtime, which also has other replicated jobs."""
    (nodes,) = (each for each in _list_replicated_jobs(runtime) if get_text(each, "name") == ROLE)
    return get_mapping(nodes, "template", "spec", "template")


def _list_replicated_jobs(runtime: Manifest) -> Sequence[Manifest]:
    return get_mappings(runtime, "spec", "template", "spec", "replicatedJobs")


def _read_options(job: Manifest) -> options.JobOptions:
    return options.decode(get_text(job, "metadata", "annotations", options.ANNOTATION))
