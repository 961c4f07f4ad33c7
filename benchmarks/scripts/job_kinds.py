"""The parts of a job and its four pods that differ between a PyTorchJob and a TrainJob."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """A kind of job with four replicas."""

    name: str
    setting: str
    """The value of the setting `kfpytorch.dialect`."""
    group: str
    version: str
    plural: str
    container: str
    spec: Mapping[str, Any]
    """The part of the spec that the connector reads."""
    replicas: Sequence[tuple[str, int]]
    """The role and the index of each replica; the name of its pod contains both."""
    role_format: str
    """A format string: the part of a pod's name that contains the role."""
    suffix: str
    """The end of a pod's name."""
    labels: tuple[str, str, str]
    """The keys of a pod's labels whose values are the name of the job, the role and the index."""
    prerequisites: str = ""
    """Group and plural of the objects that are created before a job, as in etcd's keys; empty if none are."""

    @property
    def key(self) -> str:
        """Group and plural of the kind, as in the keys of etcd."""
        return f"{self.group}/{self.plural}"

    @property
    def has_conditions(self) -> bool:
        """True if the operator reports in a condition that a job runs."""
        return self.name == "PyTorchJob"

    def build_path(self, namespace: str, name: str = "") -> str:
        """Return the API path of a job, or of all jobs of the namespace."""
        path = f"/apis/{self.group}/{self.version}/namespaces/{namespace}/{self.plural}"
        return f"{path}/{name}" if name else path

    def build_pod_name(self, job: str, role: str, index: int) -> str:
        """Return the name of a pod."""
        return f"{job}-{self.role_format.format(role)}-{index}{self.suffix}"

    def build_labels(self, job: str, role: str, index: int) -> dict[str, str]:
        """Return the labels that the operator sets on a pod."""
        return dict(zip(self.labels, (job, role, str(index)), strict=True))

    def build_status(self, *states: str, began: str, changed: str = "") -> dict[str, Any]:
        """Return the status of a job that began at `began` and reached `states` at `changed`."""
        if not self.has_conditions:
            ends = {"Succeeded": "Complete", "Failed": "Failed"}
            conditions = [
                {"type": ends[each], "status": "True", "lastTransitionTime": changed or began}
                for each in states
                if each in ends
            ]
            return {"conditions": conditions, "jobsStatus": [dict(_JOBS)]}
        return {
            "startTime": began,
            "conditions": [
                {
                    "type": each,
                    "status": "True",
                    "reason": f"PyTorchJob{each}",
                    "lastTransitionTime": (changed if number else "") or began,
                }
                for number, each in enumerate(("Created", *states))
            ],
        }


_JOBS: Final = MappingProxyType(
    {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
)
_PYTORCHJOB: Final = JobKind(
    name="PyTorchJob",
    setting="pytorchjob",
    group="kubeflow.org",
    version="v1",
    plural="pytorchjobs",
    container="pytorch",
    spec={
        "runPolicy": {"cleanPodPolicy": "None"},
        "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 3}},
    },
    replicas=(("master", 0), ("worker", 0), ("worker", 1), ("worker", 2)),
    role_format="{}",
    suffix="",
    labels=(
        "training.kubeflow.org/job-name",
        "training.kubeflow.org/replica-type",
        "training.kubeflow.org/replica-index",
    ),
)
_TRAINJOB: Final = JobKind(
    name="TrainJob",
    setting="trainjob",
    group="trainer.kubeflow.org",
    version="v1alpha1",
    plural="trainjobs",
    container="node",
    spec={"trainer": {"numNodes": 4, "numProcPerNode": 1}},
    replicas=tuple(("node", index) for index in range(4)),
    role_format="{}-0",
    suffix="-x7k2p",
    labels=(
        "jobset.sigs.k8s.io/jobset-name",
        "jobset.sigs.k8s.io/replicatedjob-name",
        "batch.kubernetes.io/job-completion-index",
    ),
    prerequisites="trainer.kubeflow.org/trainingruntimes",
)
DEFAULT: Final = _PYTORCHJOB
KINDS: Final = MappingProxyType({kind.name: kind for kind in (_PYTORCHJOB, _TRAINJOB)})
