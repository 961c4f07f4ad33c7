"""Builds Kubernetes events that report when a job that has run waits for resources again, and runs again.

The Flyte phase of the job stays RUNNING in this time. All servers derive the same event name from a change,
so that only one event reports the change.
"""

import enum
import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from backend_plugin.core import job_conditions
from backend_plugin.core.dialects import table
from backend_plugin.core.judging import job_warnings
from backend_plugin.core.judging.job_status import JobState, JobStatus
from backend_plugin.core.judging.timeouts import is_exceeded
from backend_plugin.core.judging.verdict import Phase, Verdict
from backend_plugin.core.observed import Event, Job, Observed, Pod, PodGroup
from backend_plugin.core.settings.judging import JudgingSettings
from backend_plugin.core.values import Manifest

_REPORTER: Final = "kfpytorch"
_LONGEST: Final = 1024
"""The maximum size of the message of an event, in bytes, that the API server accepts."""
_KEPT: Final = timedelta(hours=1)
"""The default time to live of events. An older change is not reported, because its event may have expired."""


class JobEventReason(enum.Enum):
    """The kind of change that an event reports; the value is the reason of the event."""

    WAITS = "WaitingForResources"
    RUNS = "Resumed"


_REASONS: Final = frozenset(reason.value for reason in JobEventReason)


class JobEventDecision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result of `decide_event`: the job runs, or it ran earlier and waits for resources again."""

    reason: JobEventReason
    event: Manifest | None = None
    """The event to write; None if it exists already or is not needed."""


def can_need_event(job: Job, pods: Sequence[Pod], events: Iterable[Event]) -> bool:
    """True if `decide_event` may return an event; a cheap check that excludes most jobs."""
    if job.deleting or job.end_condition is not None or not job.uid:
        return False
    conditions = {condition.type: condition.true for condition in job.conditions}
    if not conditions.keys() & job_conditions.STARTS:
        return False
    return (
        conditions.get(job_conditions.SUSPENDED, False)
        or any(not pod.is_bound for pod in pods)
        or bool(_list_written_events(job, events))
    )


def decide_event(
    status: JobStatus, events: Iterable[Event], verdict: Verdict, judging: JudgingSettings, now: datetime
) -> JobEventDecision | None:
    """Return whether a job in the Flyte phase RUNNING waits for resources or runs, and the event to write.

    Return None if the job is in another phase, or neither waits nor runs with all replicas, for example while
    a replica restarts.
    """
    job = status.job
    if job is None or verdict.phase is not Phase.RUNNING:
        return None
    events_of_job = _list_written_events(job, events)
    last = events_of_job[-1] if events_of_job else None
    # The time of the last event that a server has written, if it reports that the job waits.
    written = last.at if last is not None and last.reason == JobEventReason.WAITS.value else None
    since = _find_pending_since(status, judging, now)
    if since is not None:
        is_written = written is not None and written >= since
        reason, changed = JobEventReason.WAITS, None if is_written else since
    elif _has_all_replicas(status):
        reason, changed = JobEventReason.RUNS, written
    else:
        return None
    if changed is None or now - changed > _KEPT:
        return JobEventDecision(reason=reason)
    event = build_event(job, reason.value, verdict.message, now, since=changed)
    return JobEventDecision(reason=reason, event=event)


def _list_written_events(job: Job, events: Iterable[Event]) -> list[Event]:
    # An event from before the creation is about an earlier job with the same name.
    own = [
        each
        for each in events
        if is_job_event(each)
        and each.name == job.name
        and (each.at is None or job.created is None or each.at >= job.created)
    ]
    # Times have a resolution of one second. Of two events in the same second, the wait is the earlier one.
    return sorted(
        own, key=lambda event: (event.at is not None, event.at, event.reason == JobEventReason.RUNS.value)
    )


def is_job_event(event: Event) -> bool:
    """True if the kind and the reason of the event are those of events that `decide_event` returns."""
    return event.kind in table.DIALECTS and event.reason in _REASONS


def _find_pending_since(status: JobStatus, judging: JudgingSettings, now: datetime) -> datetime | None:
    """Return the time since which a job that has run waits for resources; None if it does not wait.

    A wait without a reported reason counts only after `unscheduled_pod_grace_period`.
    """
    unbound = status.unbound_reasons
    since: datetime | None
    if status.state is JobState.SUSPENDED:
        is_reported, since = bool(unbound), None if status.condition is None else status.condition.since
    else:
        lost = [
            pod
            for pod in status.pods
            if not (pod.is_bound or pod.deleted)
            and pod.phase in ("Pending", "")
            and pod.replica in status.replaced
        ]
        names = {pod.replica for pod in lost}
        # A pod group's status may be older than the new pod, so require a reason for that pod.
        is_reported = any(wait.reason and names & {*wait.replicas} for wait in unbound)
        # All servers derive the same time from the creation of the pods, even if some pods have no condition.
        since = min(filter(None, [pod.created for pod in lost]), default=None)
    overdue = is_exceeded(judging.unscheduled_pod_grace_period, since, now)
    return since if is_reported or overdue else None


def _has_all_replicas(status: JobStatus) -> bool:
    """True if the job runs and all its replicas are ready or succeeded.

    For a job that can run with fewer replicas, one ready replica is sufficient if all pods that replaced
    other pods run or have succeeded.
    """
    if status.state is not JobState.RUNNING:
        return False
    if status.scales:
        lost = [pod.phase for pod in status.pods if pod.replica in status.replaced]
        return status.ready > 0 and {"Running", "Succeeded"}.issuperset(lost)
    return status.ready + sum(pod.phase == "Succeeded" for pod in status.pods) >= status.total


def can_need_warning(job: Job, groups: Sequence[PodGroup]) -> bool:
    """True if `build_warning_events` may return an event; a cheap check that excludes most jobs."""
    return job.patch_managers is not None and bool(groups) and bool(job.uid) and job.end_condition is None


def build_warning_events(observed: Observed, now: datetime) -> list[Manifest]:
    """Return a core/v1 event for each warning of a scheduler or queue that an event must report."""
    job = observed.job
    if job is None:
        return []
    return [
        build_event(job, note.event, note.text, now, since=job.created or now)
        for note in job_warnings.list_scheduler_warnings(observed)
        if note.event
    ]


def build_event(job: Job, reason: str, message: str, now: datetime, *, since: datetime) -> Manifest:
    """Return a core/v1 event about a job; its name depends on `since`, the time of the reported change."""
    turn = hashlib.sha256(f"{job.uid} {reason} {since.isoformat()}".encode()).hexdigest()
    line = message.partition("\n")[0].encode()[:_LONGEST].decode(errors="ignore")
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    kind = table.get_dialect(job.dialect).resource.type_meta
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{job.name}.{turn[:16]}", "namespace": job.namespace},
        "involvedObject": {**kind, "name": job.name, "namespace": job.namespace, "uid": job.uid},
        "type": "Normal" if reason == JobEventReason.RUNS.value else "Warning",
        "reason": reason,
        "message": line,
        "source": {"component": _REPORTER},
        "reportingComponent": _REPORTER,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
