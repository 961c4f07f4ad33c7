"""The API resources of a TrainJob, and the names that its operators require or set."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from backend_plugin.core.dialects.base import JobResource, ReplicaLabels, ReplicaPort
from backend_plugin.core.names import PREFIX
from backend_plugin.core.observed import Job
from backend_plugin.core.package_installation import with_packages
from backend_plugin.core.reading import get_mappings, get_text
from backend_plugin.core.values import JsonValue, Manifest
from kfpytorch_common import data_sources

RESOURCE: Final = JobResource(
    group="trainer.kubeflow.org", version="v1alpha1", kind="TrainJob", plural="trainjobs"
)
RUNTIME: Final = JobResource(
    group="trainer.kubeflow.org", version="v1alpha1", kind="TrainingRuntime", plural="trainingruntimes"
)
"""The API resource of the training runtime, which contains the pod template of a TrainJob."""
CLUSTER_RUNTIME: Final = JobResource(
    group="trainer.kubeflow.org",
    version="v1alpha1",
    kind="ClusterTrainingRuntime",
    plural="clustertrainingruntimes",
    namespaced=False,
)
CONTAINER: Final = "node"
"""The name of the training container; Trainer requires exactly this name."""
ROLE: Final = "node"
"""The name of the replicated job with all nodes; it is a part of the names of pods and hosts."""
LAUNCHER: Final = "launcher"
"""The name of the replicated job with the first node of an MPI job, which runs mpirun."""
FIRST_INDEX: Final = f"{PREFIX}first-index"
"""The label of the MPI nodes other than the launcher: a number to add to their completion indexes."""
INITIALIZERS: Final[Mapping[str, str]] = {
    data_sources.DATASET: "dataset-initializer",
    data_sources.MODEL: "model-initializer",
}
"""The names of the initializers' replicated jobs and containers, by the kind of data that they load."""
PORT: Final = ReplicaPort(name="trainjob-port", number=29500)
"""The port of the first node, to which all nodes connect, and the value of MASTER_PORT."""
ANCESTOR: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
MANAGER: Final = f"{PREFIX}connector"
"""The `manager` of the runtime patches that this project writes into the spec of a TrainJob."""
FRAMEWORK: Final = "trainer.kubeflow.org/framework"
"""The label by which the Kubeflow SDK recognizes a runtime."""
INDEX: Final = "batch.kubernetes.io/job-completion-index"
_JOBSET: Final = "jobset.sigs.k8s.io/"
LABELS: Final = ReplicaLabels(
    job_name=_JOBSET + "jobset-name",
    role=_JOBSET + "replicatedjob-name",
    index=INDEX,
    attempt=_JOBSET + "restart-attempt",
    first_index=FIRST_INDEX,
    aliases={LAUNCHER: ROLE},
)
LONGEST_NAME: Final = 44
"""The maximum length of a job's name.

The name of a pod, ``<job>-node-0-<index>-<5 characters>``, then has at most 63 characters up to index 99999.
"""
LONGEST_NAME_WITH_INITIALIZERS: Final = 33
"""The maximum length of the name of a job with initializers.

The pod name ``<job>-dataset-initializer-0-0-<5 characters>`` then has at most 63 characters.
"""


def build_runtime_reference(kind: str, name: str) -> Manifest:
    """Return the field `runtimeRef` of a TrainJob: a reference to the runtime with this kind and name."""
    return {"apiGroup": RESOURCE.group, "kind": kind, "name": name}


def build_runtime_patch(jobs: Sequence[JsonValue]) -> Manifest:
    """Return an item for `runtimePatches` of a TrainJob; `jobs` are the changes of the replicated jobs."""
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def build_host_name(job: str, role: str, index: int) -> str:
    """Return the host name of the pod with this index in the replicated job `role` of the TrainJob `job`."""
    return f"{job}-{role}-0-{index}"


def build_pod_name(job: Job, role: str, index: int) -> str:
    """Return the host name of a replica's pod; in the pod's name, ``-`` and five random characters follow."""
    if not job.launcher:
        return build_host_name(job.name, role, index)
    return build_host_name(job.name, role, index - 1) if index else build_host_name(job.name, LAUNCHER, 0)


def find_trainer(spec: Manifest) -> Manifest:
    """Return the training container of a pod spec; {} if the spec has none."""
    containers = get_mappings(spec, "containers")
    return next((each for each in containers if get_text(each, "name") == CONTAINER), {})


def iter_volume_conflicts(
    spec: Manifest, names: Collection[str], directories: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield (path, value) for each volume with a name in `names`, and each mount at one of `directories`.

    Only the mounts of the training container are checked.
    """
    for index, volume in enumerate(get_mappings(spec, "volumes")):
        if (name := get_text(volume, "name")) in names:
            yield f"pod.spec.volumes[{index}].name", name
    for mount in get_mappings(find_trainer(spec), "volumeMounts"):
        if (directory := get_text(mount, "mountPath").rstrip("/")) in directories:
            yield f"pod.spec.containers[{CONTAINER}].volumeMounts", directory


def with_installer(spec: Manifest, packages: Sequence[str]) -> Manifest:
    """Return a pod spec whose training container installs `packages` before it runs its command."""
    if not packages:
        return spec
    trainer = find_trainer(spec)
    changed = with_packages(trainer, packages, f"pod.spec.containers[{CONTAINER}]")
    containers = get_mappings(spec, "containers")
    return {**spec, "containers": [changed if each is trainer else each for each in containers]}
