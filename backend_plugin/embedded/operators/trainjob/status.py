"""Builds the conditions and the counts of Jobs in the status of a TrainJob."""

from collections.abc import Sequence

from backend_plugin.core.reading import get_mapping, get_mappings
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import build_condition, find_condition, is_active, merge_conditions
from backend_plugin.embedded.operators.actions import JobSnapshot
from backend_plugin.embedded.operators.trainjob.job_spec import ROLE, TrainJobSpec
from backend_plugin.embedded.operators.trainjob.state import JobSetState


def find_end(job: Manifest) -> Manifest | None:
    """Return the condition Complete or Failed of a job, if it has one."""
    conditions = get_mappings(get_mapping(job, "status"), "conditions")
    return next((each for each in conditions if each.get("type") in ("Complete", "Failed")), None)


def build_conditions(
    snapshot: JobSnapshot, end: Manifest | None, *, is_suspended: bool
) -> Sequence[Manifest]:
    """Return the conditions of the job, with its suspension.

    `end` is the condition Complete or Failed to include; None if the job has not ended.
    """
    there = get_mappings(snapshot.job, "status", "conditions")
    kept = [each for each in there if each.get("type") != "Failed"]
    new = []
    if is_suspended or _has_condition(snapshot.job, "Suspended"):
        value, word = ("True", "Suspended") if is_suspended else ("False", "Resumed")
        message = f"TrainJob is {word.lower()}"
        new.append(build_condition("Suspended", value, reason=word, message=message, now=snapshot.now))
    return merge_conditions(kept, [*new, *([end] if end else [])])


def build_job_status(
    job: TrainJobSpec, state: JobSetState, pods: Sequence[Manifest] | None, end: Manifest | None
) -> Manifest:
    """Return the entry of `jobsStatus`: the number of Jobs (0 or 1) in each state.

    `pods` are the pods of the current Job; None while pods of an earlier Job exist.
    """
    counts = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
    if end is not None:
        counts["failed" if end["type"] == "Failed" else "succeeded"] = 1
    elif pods is not None:
        active = [pod for pod in pods if is_active(pod)]
        counts["ready"] = int(bool(pods) and _count_ready(active, state) >= job.nodes)
        counts["active"] = int(bool(active))
        counts["suspended"] = int(job.is_suspended)
    return {"name": ROLE, **counts}


def _count_ready(active: Sequence[Manifest], state: JobSetState) -> int:
    """Return the number of completion indexes that are completed or have a ready pod."""
    return sum(_has_condition(pod, "Ready") for pod in active) + len(state.completed)


def _has_condition(manifest: Manifest, kind: str) -> bool:
    """True if the condition of a job or a pod has the status ``True``."""
    return find_condition(get_mappings(manifest, "status", "conditions"), kind).get("status") == "True"
