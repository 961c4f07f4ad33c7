"""Decides whether the failed pods of a Job make it fail, as the Job controller does."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from backend_plugin.core.reading import get_mapping, get_mappings, get_time
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import get_phase, is_tracked
from backend_plugin.embedded.operators.trainjob.job_spec import FAIL_JOB, IGNORE, TrainJobSpec

_BATCH: Final = timedelta(seconds=2)
"""The time that the Job controller waits after the end of a container, to handle several ends together."""
_LIMIT: Final = "Job has reached the specified backoff limit"


def find_failure(
    job: TrainJobSpec, pods: Sequence[Manifest], now: datetime
) -> tuple[Manifest | None, datetime | None]:
    """Return the reason and message if the Job fails now, and the time at which the next failed pod counts.

    The first is None if the Job does not fail now, the second if no failed pod waits to be counted.
    """
    failed = [(pod, *job.find_pod_action(pod)) for pod in pods if _is_failed(pod)]
    ends = [
        (now if job.is_suspended else _get_count_time(pod, now), action, message)
        for pod, action, message in failed
        if action != IGNORE
    ]
    failures = [(action, message) for at, action, message in ends if at <= now]
    return _build_failure(job, failures), min((at for at, _, _ in ends if at > now), default=None)


def _is_failed(pod: Manifest) -> bool:
    return get_phase(pod) == "Failed" and is_tracked(pod)


def _get_count_time(pod: Manifest, now: datetime) -> datetime:
    """Return the time at which the Job controller handles the end of the pod."""
    statuses = get_mappings(get_mapping(pod, "status"), "containerStatuses")
    ends = [get_time(get_mapping(each, "state", "terminated"), "finishedAt") for each in statuses]
    return max((end for end in ends if end is not None), default=now - _BATCH) + _BATCH


def _build_failure(job: TrainJobSpec, failures: Sequence[tuple[str, str]]) -> Manifest | None:
    message = next((message for action, message in failures if action == FAIL_JOB), None)
    if message is not None:
        return {"reason": "PodFailurePolicy", "message": message}
    if len(failures) > job.backoff_limit:
        return {"reason": "BackoffLimitExceeded", "message": _LIMIT}
    return None
