"""Metrics of the jobs in the cache: their number, how long they wait, and when they start.

The gauges are computed during a scrape, in the scraping thread. They only read attributes, which the event
loop never modifies in place: it replaces the whole value.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from backend_plugin.core.judging.verdict import Phase
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.metrics import Labels, Metrics
from kfpytorch_common.labels import is_value

MAX_QUEUES: Final = 50
"""Maximum number of (namespace, queue) pairs that have their own time series."""
OTHER: Final = "_other"
"""The namespace and queue in the labels of all jobs beyond the `MAX_QUEUES` pairs. No namespace and no queue
can have this name."""

_UNPLACED: Final = frozenset({Phase.QUEUED, Phase.WAITING_FOR_RESOURCES})
_STARTED: Final = frozenset({Phase.RUNNING, Phase.SUCCEEDED})
_PLACED: Final = _STARTED | {Phase.INITIALIZING}
_BOTH, _ONLY_START = 2, 1
"""Values of `CachedJob.unmeasured`. `_BOTH`: neither the waiting time nor the start time is measured yet.
`_ONLY_START`: only the start time is not measured yet. If both are measured, the value is 0."""


def count_jobs(cache: Cache) -> Mapping[Labels, float]:
    """Return the number of existing jobs by phase, namespace and queue.

    The `MAX_QUEUES` (namespace, queue) pairs with the most jobs have their own labels. All other pairs share
    the label `OTHER`.
    """
    jobs = Counter((_get_phase(each), each.namespace, _get_queue(each)) for each in cache if each.exists)
    totals = Counter[tuple[str, str]]()
    for (_, namespace, queue), count in jobs.items():
        totals[namespace, queue] += count
    named = {*sorted(totals, key=lambda each: (-totals[each], each))[:MAX_QUEUES]}
    counts = Counter[Labels]()
    for (phase, namespace, queue), count in jobs.items():
        is_named = (namespace, queue) in named
        counts[phase.value, namespace if is_named else OTHER, queue if is_named else OTHER] += count
    return counts


def compute_oldest_wait(cache: Cache, now: datetime) -> float:
    """Return the age in seconds of the oldest job that is queued or waits for resources; 0 if none."""
    waiting = [each.job for each in cache if each.exists and _get_phase(each) in _UNPLACED]
    created = [job.created for job in waiting if job is not None and job.created is not None]
    return max(0.0, (now - min(created)).total_seconds()) if created else 0.0


def measure_start(metrics: Metrics, entry: CachedJob, phase: Phase, now: datetime) -> None:
    """Add the waiting time of a job and the time until its start to histograms of `metrics`, each once.

    A job that another server created is skipped.
    """
    if entry.job is None or entry.job.created is None:
        return
    age = max(0.0, (now - entry.job.created).total_seconds())
    for stage, phases, durations in (
        (_BOTH, _PLACED, metrics.job_wait),
        (_ONLY_START, _STARTED, metrics.job_start),
    ):
        if entry.unmeasured == stage and phase in phases:
            durations.observe(age)
            entry.unmeasured -= 1


def _get_phase(entry: CachedJob) -> Phase:
    job, answer = entry.job, entry.answer
    if entry.logged_phase is not None:
        return entry.logged_phase
    if answer is not None:
        return answer.phase
    return Phase.UNDEFINED if job is not None and job.conditions else Phase.QUEUED


def _get_queue(entry: CachedJob) -> str:
    groups = (each.queue for each in entry.pod_groups if each.queue and not each.foreign)
    queue = next(groups, entry.queue)
    # Users may edit both, so the name may not be a valid label value.
    return queue if not queue or is_value(queue) else OTHER
