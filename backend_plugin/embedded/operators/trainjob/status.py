"""The status of a TrainJob: its conditions, the numbers of Jobs in `jobsStatus`, its JobSet and its failure.

The state of the JobSet and of its Job is stored in the field `jobSet`. In Kubernetes, a TrainJob
has no such field, because its JobSet and its Job are separate objects.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from backend_plugin.core.reading import get_mapping, get_mappings, get_time
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import (
    build_condition,
    find_condition,
    get_phase,
    is_active,
    is_tracked,
    merge_conditions,
)
from backend_plugin.embedded.operators.base import JobSnapshot
from backend_plugin.embedded.operators.trainjob.job_spec import FAIL_JOB, IGNORE, ROLE, TrainJobSpec

FIELD: Final = "jobSet"


class JobSetState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of the JobSet and of its current Job, as the field `jobSet` contains it."""

    restarts: int = 0
    counted: int = msgspec.field(default=0, name="restartsCountTowardsMax")
    """The number of restarts that count towards `maxRestarts`."""
    completed: list[int] = msgspec.field(default_factory=list, name="completedIndexes")
    """The completed indexes of the Job."""
    failure: Mapping[str, str] | None = None
    """The reason and message with which the Job fails when its last pod has ended."""


def find_end(job: Manifest) -> Manifest | None:
    """Return the condition Complete or Failed of a job, if it has one."""
    conditions = get_mappings(get_mapping(job, "status"), "conditions")
    return next((each for each in conditions if each.get("type") in ("Complete", "Failed")), None)


def build_conditions(
    snapshot: JobSnapshot, end: Manifest | None, *, is_suspended: bool
) -> Sequence[Manifest]:
    """Return the conditions of the job. `end` is the condition Complete or Failed, if the job has ended."""
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

    `pods` are the pods of the current Job; None while pods of an earlier Job exist. `end` is the condition
    Complete or Failed; None while the job has not ended.
    """
    counts = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
    if end is not None:
        counts["failed" if end["type"] == "Failed" else "succeeded"] = 1
    elif pods is not None:
        active = [pod for pod in pods if is_active(pod)]
        # An index is ready if it is completed or has a ready pod.
        ready = sum(_has_condition(pod, "Ready") for pod in active) + len(state.completed)
        counts["ready"] = int(bool(pods) and ready >= job.nodes)
        counts["active"] = int(bool(active))
        counts["suspended"] = int(job.is_suspended)
    return {"name": ROLE, **counts}


def _has_condition(manifest: Manifest, kind: str) -> bool:
    return find_condition(get_mappings(manifest, "status", "conditions"), kind).get("status") == "True"


_BATCH: Final = timedelta(seconds=2)
"""The time that the Job controller waits after the end of a container, to handle several pods together."""
_LIMIT: Final = "Job has reached the specified backoff limit"


def find_failure(
    job: TrainJobSpec, pods: Sequence[Manifest], now: datetime
) -> tuple[Mapping[str, str] | None, datetime | None]:
    """Return the reason and message of the Job's failure at `now`, and the time at which to check again.

    The first value is None if the Job has not failed; the second is None if no further check is required. The
    backoff limit of the Jobs of this project is always 0.
    """
    failure: Mapping[str, str] | None = None
    times = []
    for pod in pods:
        action, message = job.find_pod_action(pod)
        if action == IGNORE or not _has_failed(pod):
            continue
        at = _get_count_time(job, pod, now)
        if at > now:
            times.append(at)
        elif action == FAIL_JOB:
            return {"reason": "PodFailurePolicy", "message": message}, None
        else:
            failure = {"reason": "BackoffLimitExceeded", "message": _LIMIT}
    return failure, min(times, default=None)


def _has_failed(pod: Manifest) -> bool:
    return get_phase(pod) == "Failed" and is_tracked(pod)


def _get_count_time(job: TrainJobSpec, pod: Manifest, now: datetime) -> datetime:
    if job.is_suspended:
        return now
    statuses = get_mappings(get_mapping(pod, "status"), "containerStatuses")
    ends = [get_time(get_mapping(each, "state", "terminated"), "finishedAt") for each in statuses]
    return max((end for end in ends if end is not None), default=now - _BATCH) + _BATCH
