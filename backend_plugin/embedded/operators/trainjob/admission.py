"""Completes TrainJobs and TrainingRuntimes as the API server does, and rejects unsupported fields."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from backend_plugin.core.dialects.trainjob.manifest import EXCLUSIVE_TOPOLOGY
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.pod_rules.field_errors import build_forbidden_error, build_invalid_error
from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission import ResourceSchema, build_unprocessable_resource
from backend_plugin.embedded.objects import Key
from backend_plugin.embedded.operators.trainjob.job_spec import DIALECT, ROLE

# The supported types of Trainer 2.3.0, in the format of `core.pod_schema`.
_PARTS: Final = """\
TrainJobSpec managedBy:string runtimeRef:RuntimeRef suspend:bool trainer:Trainer
RuntimeRef apiGroup:string kind:string name:string
Trainer numNodes:int32 numProcPerNode:int32 resourcesPerNode:ResourceRequirements
TrainingRuntimeSpec mlPolicy:MLPolicy template:JobSetTemplate
MLPolicy numNodes:int32
JobSetTemplate metadata:TemplateMeta spec:JobSetSpec
TemplateMeta annotations:{string} labels:{string}
JobSetSpec failurePolicy:FailurePolicy network:Network replicatedJobs:[ReplicatedJob]
FailurePolicy maxRestarts:int32 restartStrategy:string rules:[FailurePolicyRule]
FailurePolicyRule action:string name:string onJobFailureMessagePatterns:[string] onJobFailureReasons:[string]
Network enableDNSHostnames:bool publishNotReadyAddresses:bool
ReplicatedJob groupName:string name:string replicas:int32 template:JobTemplate
JobTemplate metadata:TemplateMeta spec:JobSpec
JobSpec backoffLimit:int32 podFailurePolicy:PodFailurePolicy successPolicy:Success template:PodTemplateSpec
PodFailurePolicy rules:[PodFailurePolicyRule]
PodFailurePolicyRule action:string onExitCodes:ExitCodes onPodConditions:[PodConditionPattern]
ExitCodes containerName:string operator:string values:[int32]
PodConditionPattern status:string type:string
Success rules:[SuccessRule]
SuccessRule succeededIndexes:string
"""

_SCHEMA: Final = ResourceSchema(
    parts=_PARTS,
    defaults={
        "TrainJobSpec": {"suspend": False, "managedBy": "trainer.kubeflow.org/trainjob-controller"},
        "RuntimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime"},
        "ReplicatedJob": {"groupName": "default", "replicas": 1},
        "PodConditionPattern": {"status": "True"},
    },
)
_WEBHOOK: Final = "validator.trainjob.trainer.kubeflow.org"
_MOST_NODES: Final = 1_000
"""The maximum number of nodes of a job. Creating more pods would block the event loop for too long."""
_REPLICATED_JOBS: Final = "spec.template.spec.replicatedJobs"
_UNSUPPORTED: Final = "the embedded cluster does not support it"
_NO_INITIALIZERS: Final = (
    "the embedded cluster runs no initializers, because it runs no images: leave dataset and model out, or "
    "use pyflyte run"
)
_NO_MPI: Final = (
    "the embedded cluster runs no MPI jobs, because its nodes have no sshd: use pyflyte run, or a cluster "
    "with Kubeflow Trainer"
)


def admit_job(manifest: Manifest, runtime: Manifest | None) -> Manifest:
    """Return a new TrainJob with the defaults of the API server. The store adds uid, version and times.

    Raises:
        RequestRejected: If the embedded cluster does not support the job, or if its training runtime is
            missing, with the error of Trainer's webhook.
    """
    job = _SCHEMA.prune_object(manifest)
    _require_supported(job, manifest)
    if runtime is None:
        reference = get_mapping(job, "spec", "runtimeRef")
        kind, name, group = (get_text(reference, key) for key in ("kind", "name", "apiGroup"))
        what = kind[0].lower() + kind[1:]
        missing = f'{kind}.{group} "{name}" not found: specified {what} must be created before the TrainJob'
        error = build_invalid_error("spec.runtimeRef", reference, f"{missing} is created")
        raise RequestRejected(403, "Forbidden", f'admission webhook "{_WEBHOOK}" denied the request: {error}')
    return job


def find_runtime(job: Manifest) -> Key:
    """Return the key of the training runtime of a job."""
    reference, found = get_mapping(job, "spec", "runtimeRef"), get_mapping(job, "metadata")
    return Key(get_text(reference, "kind"), get_text(found, "namespace"), get_text(reference, "name"))


def admit_runtime(manifest: Manifest) -> Manifest:
    """Return a new TrainingRuntime with the API server's defaults. The store adds uid, version and times.

    Raises:
        RequestRejected: If the embedded cluster does not support the runtime.
    """
    runtime = _SCHEMA.prune_object(manifest)
    jobs = get_mappings(get_mapping(runtime, "spec", "template", "spec"), "replicatedJobs")
    names = [get_text(job, "name") for job in jobs]
    _require_runnable(manifest, names)
    _require_supported(runtime, manifest)
    if any(EXCLUSIVE_TOPOLOGY in get_mapping(job, "template", "metadata", "annotations") for job in jobs):
        path = f"{_REPLICATED_JOBS}.template.metadata.annotations[{EXCLUSIVE_TOPOLOGY}]"
        raise _build_unsupported(manifest, path, _UNSUPPORTED)
    if names != [ROLE]:
        detail = f"the embedded cluster supports exactly one replicated job, {ROLE}"
        raise _build_unsupported(manifest, _REPLICATED_JOBS, detail)
    return runtime


def _require_runnable(runtime: Manifest, names: Sequence[str]) -> None:
    if {*DIALECT.initializers.values()}.intersection(names):
        raise _build_unsupported(runtime, _REPLICATED_JOBS, _NO_INITIALIZERS)
    if "mpi" in get_mapping(runtime, "spec", "mlPolicy"):
        raise _build_unsupported(runtime, "spec.mlPolicy.mpi", _NO_MPI)


def _require_supported(made: Manifest, manifest: Manifest) -> None:
    spec = get_mapping(made, "spec")
    dropped = _find_dropped(manifest.get("spec"), spec, "spec")
    wrong = [build_forbidden_error(path, _UNSUPPORTED) for path in dropped]
    wrong += [
        build_forbidden_error(f"spec.{field}.numNodes", f"must be at most {_MOST_NODES}")
        for field in ("trainer", "mlPolicy")
        if (get_int(get_mapping(spec, field), "numNodes") or 0) > _MOST_NODES
    ]
    if wrong:
        raise build_unprocessable_resource(made, wrong)


def _find_dropped(original: Any, kept: Any, path: str) -> Iterator[str]:
    """Yield the paths of the fields in `original` that `ResourceSchema.prune` has dropped."""
    if isinstance(original, Mapping):
        for key, value in original.items():
            if key in kept:
                yield from _find_dropped(value, kept[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(original, list):
        for index, (value, other) in enumerate(zip(original, kept, strict=True)):
            yield from _find_dropped(value, other, f"{path}[{index}]")


def _build_unsupported(runtime: Manifest, path: str, detail: str) -> RequestRejected:
    return build_unprocessable_resource(runtime, [build_forbidden_error(path, detail)])
