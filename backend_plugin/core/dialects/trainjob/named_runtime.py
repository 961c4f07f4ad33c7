"""The fields of a TrainJob that names a training runtime of the cluster: `trainer` and `runtimePatches`.

A runtime patch can change only some fields of the pods, so a task that sets other fields is rejected.
"""

from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

from backend_plugin.core.dialects.trainjob import initializers, resource
from backend_plugin.core.dialects.trainjob.environment import build_environment, with_environment
from backend_plugin.core.errors import InvalidTask, Problem
from backend_plugin.core.job import ReplicaGroup, TrainingJob
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import JsonValue, Manifest, pick_fields

_REMEDY: Final = "leave it out, or leave train_job.runtime out"
# Trainer sets these variables if the runtime has the torch policy, and rejects a job that sets them.
_RESERVED: Final = frozenset({
    *("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
})  # fmt: skip
_OF_TRAINER: Final = {"image": "image", "command": "command", "args": "args", "resources": "resourcesPerNode"}
_OF_CONTAINER: Final = ("volumeMounts", "securityContext")
# The fields of the training container that the patch does not change. The runtime has its own container name
# and termination message policy; the field `trainer` of the job contains the others.
_WITHOUT_EFFECT: Final = ("terminationMessagePolicy", "name", "env", *_OF_TRAINER)
_WITHOUT_PROBLEM: Final = (*_OF_CONTAINER, *_WITHOUT_EFFECT)
_EMPTY: Final[Any] = (None, "", [], {})
_OF_POD: Final = (
    *("serviceAccountName", "volumes", "imagePullSecrets", "securityContext", "nodeSelector", "affinity"),
    *("tolerations", "terminationGracePeriodSeconds"),
)
_SUPPORTED: Final = (*_OF_POD, "containers", "restartPolicy")


def build_spec(job: TrainingJob, pod: Manifest, name: str, annotations: Mapping[str, str]) -> Manifest:
    """Return the fields `trainer` and `runtimePatches` of the spec; the Job of the nodes gets `annotations`.

    Raises `InvalidTask` with all fields of the task that a patch cannot change.
    """
    (group,) = job.groups
    spec = resource.with_installer(get_mapping(pod, "spec"), job.train_options.packages)
    trainer = resource.find_trainer(spec)
    if problems := [*_iter_job_problems(job, group), *_iter_pod_problems(spec, trainer)]:
        raise InvalidTask(*problems)
    variables = [each for each in build_environment(job, group, name) if each["name"] not in _RESERVED]
    patched: dict[str, JsonValue] = {key: spec[key] for key in _OF_POD if spec.get(key) not in _EMPTY}
    if container := pick_fields(trainer, _OF_CONTAINER):
        patched["containers"] = [{"name": resource.CONTAINER, **container}]
    template: Manifest = {"metadata": get_mapping(pod, "metadata"), "spec": patched}
    of_job: Manifest = {"metadata": {"annotations": annotations}} if annotations else {}
    jobs: list[JsonValue] = [
        *initializers.build_patches(job, spec),
        {"name": resource.ROLE, "template": {**of_job, "spec": {"template": template}}},
    ]
    return {
        "trainer": {
            "numNodes": group.replicas,
            "numProcPerNode": group.processes,
            "env": with_environment(trainer, variables)["env"],
            **{_OF_TRAINER[key]: value for key, value in pick_fields(trainer, _OF_TRAINER).items()},
        },
        "runtimePatches": [resource.build_runtime_patch(jobs)],
    }


def _iter_job_problems(job: TrainingJob, group: ReplicaGroup) -> Iterator[Problem]:
    options, restarts = job.train_options, group.restart_policy
    if job.elastic is not None and job.elastic.min_replicas < job.elastic.max_replicas:
        yield Problem(
            field="custom.elasticConfig",
            value=f"{job.elastic.min_replicas}:{job.elastic.max_replicas}",
            message="is a range, and Trainer has no elastic jobs on a named runtime",
            remedy="leave train_job.runtime out, or write a fixed number of nodes",
        )
    values: dict[str, JsonValue] = {
        "restartPolicy": None if restarts == "Never" else restarts,
        "kfpytorch.trainJob.maxRestarts": options.max_restarts,
        "kfpytorch.trainJob.successPolicy": options.succeeded_indexes,
        "kfpytorch.trainJob.podFailurePolicy": [each.action for each in options.pod_failure_rules] or None,
        "runPolicy.backoffLimit": job.run_policy.backoff_limit or None,
        "kfpytorch.numRetries": group.num_retries or None,
    }
    for field, value in values.items():
        if value is not None:
            yield _build_problem(f"custom.{field}", value)


def _iter_pod_problems(spec: Manifest, trainer: Manifest) -> Iterator[Problem]:
    yield from _iter_unsupported(spec, _SUPPORTED, "pod.spec")
    yield from _iter_unsupported(trainer, _WITHOUT_PROBLEM, f"pod.spec.containers[{resource.CONTAINER}]")
    for container in get_mappings(spec, "containers"):
        if container is not trainer:
            yield _build_problem("pod.spec.containers", get_text(container, "name"))


def _iter_unsupported(fields: Manifest, supported: Container[str], path: str) -> Iterator[Problem]:
    for key, value in fields.items():
        if key not in supported and value not in _EMPTY:
            yield _build_problem(f"{path}.{key}", value)


def _build_problem(field: str, value: JsonValue) -> Problem:
    message = "cannot be set for a named runtime, because a patch cannot express it"
    return build_problem(field, value, message, _REMEDY)
