"""The annotations that place all nodes of a job in one domain: of JobSet, or of Kueue."""

from collections.abc import Mapping
from typing import Final

from backend_plugin.core.job import ReplicaRole, TrainingJob
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.reading import get_mapping
from backend_plugin.core.train_job_options import EXCLUSIVE
from backend_plugin.core.values import Manifest

EXCLUSIVE_TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def build_job_annotations(job: TrainingJob, draft: JobDraft) -> Mapping[str, str]:
    """Return the annotation of the nodes' Job for which JobSet places it alone in a domain, if required."""
    mode, level = _get_mode(job, draft)
    return {EXCLUSIVE_TOPOLOGY: level} if mode == EXCLUSIVE else {}


def build_pod_template(job: TrainingJob, draft: JobDraft) -> Manifest:
    """Return the pod template of the nodes with the annotation by which Kueue selects a domain."""
    pod = draft.pods[ReplicaRole.NODE]
    mode, level = _get_mode(job, draft)
    if mode in ("", EXCLUSIVE):
        return pod
    metadata = get_mapping(pod, "metadata")
    annotations = {**get_mapping(metadata, "annotations"), f"kueue.x-k8s.io/podset-{mode}-topology": level}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


def _get_mode(job: TrainingJob, draft: JobDraft) -> tuple[str, str]:
    """Return the mode and the level of the job's `Topology`; both are empty if the job has none."""
    topology = job.train_options.topology
    return ("", "") if topology is None else (topology.get_mode(queued=draft.suspended), topology.level)
