"""Decides whether the failed pods of a Job make it fail, as the Job controller does."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_time
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import count_restarts, get_phase, get_uid, is_ended, is_tracked
from backend_plugin.embedded.operators.trainjob.job_spec import FAIL_JOB, IGNORE, TrainJobSpec
from backend_plugin.embedded.operators.trainjob.status import JobSetState

_BATCH: Final = timedelta(seconds=2)
"""The time that the Job controller waits after the end of a container, to handle several ends together."""
_LIMIT: Final = "Job has reached the specified backoff limit"


def count_failures(
    job: TrainJobSpec, state: JobSetState, pods: Sequence[Manifest], now: datetime
) -> tuple[JobSetState, datetime | None]:
    """Return the state with the failed pods that count now and, if the Job fails now, with its failure.

    The second value is the time at which the next failed pod counts; None if no failed pod waits.
    """
    ends = [
        (now if job.is_suspended else _get_count_time(pod, now), pod, *job.find_pod_action(pod))
        for pod in pods
        if get_phase(pod) == "Failed" and is_tracked(pod) and get_uid(pod) not in state.failed
    ]
    ends = [each for each in ends if each[2] != IGNORE]
    failed = (*state.failed, *(get_uid(pod) for at, pod, _, _ in ends if at <= now))
    messages = [message for at, _, action, message in ends if at <= now and action == FAIL_JOB]
    failure: Manifest | None = None
    if messages:
        failure = {"reason": "PodFailurePolicy", "message": messages[0]}
    elif len(failed) > job.backoff_limit or _has_too_many_restarts(job, pods):
        failure = {"reason": "BackoffLimitExceeded", "message": _LIMIT}
    next_count = min((at for at, *_ in ends if at > now), default=None)
    return replace(state, failed=failed, failure=failure), next_count


def _has_too_many_restarts(job: TrainJobSpec, pods: Sequence[Manifest]) -> bool:
    """True if the containers of active pods were restarted in place as often as `backoffLimit` allows."""
    if get_text(job.template, "spec", "restartPolicy") != "OnFailure":
        return False
    return sum(count_restarts(pod) for pod in pods if not is_ended(pod)) >= max(1, job.backoff_limit)


def _get_count_time(pod: Manifest, now: datetime) -> datetime:
    """Return the time at which the Job controller handles the end of the pod."""
    statuses = get_mappings(get_mapping(pod, "status"), "containerStatuses")
    ends = [get_time(get_mapping(each, "state", "terminated"), "finishedAt") for each in statuses]
    return max((end for end in ends if end is not None), default=now - _BATCH) + _BATCH
