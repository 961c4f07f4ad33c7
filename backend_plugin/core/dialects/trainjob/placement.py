"""The annotations by which JobSet or Kueue places all nodes of a job in one topology domain."""

from collections.abc import Mapping
from typing import Final

from backend_plugin.core.job import ReplicaRole, TrainingJob
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.reading import get_mapping
from backend_plugin.core.train_job_options import EXCLUSIVE
from backend_plugin.core.values import Manifest

EXCLUSIVE_TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def build_job_annotations(job: TrainingJob, draft: JobDraft) -> Mapping[str, str]:
    """Return the annotation that gives the Job of the training nodes its own topology domain, or {}."""
    mode, level = _get_mode(job, draft)
    return {EXCLUSIVE_TOPOLOGY: level} if mode == EXCLUSIVE else {}


def build_pod_template(job: TrainingJob, draft: JobDraft) -> Manifest:
    """Return the pod template of the nodes, with an annotation if the job requests a topology from Kueue."""
    pod = draft.pods[ReplicaRole.NODE]
    mode, level = _get_mode(job, draft)
    if mode in ("", EXCLUSIVE):
        return pod
    metadata = get_mapping(pod, "metadata")
    annotations = {**get_mapping(metadata, "annotations"), f"kueue.x-k8s.io/podset-{mode}-topology": level}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


def _get_mode(job: TrainingJob, draft: JobDraft) -> tuple[str, str]:
    """Return the mode (such as ``required``) and the level of the job's topology; empty texts if absent."""
    topology = job.train_options.topology
    return ("", "") if topology is None else (topology.get_mode(queued=draft.suspended), topology.level)
