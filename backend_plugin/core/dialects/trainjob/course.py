"""Derives from pods and events what Trainer does not report: the start, restarts and some ends of a TrainJob.

Two kinds of ends are derived. An elastic job succeeds even if nodes beyond its minimum were never scheduled.
A job fails if its nodes were restarted more often than the limits for failures and disruptions allow.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Final

from msgspec import structs

from backend_plugin.core import job_conditions
from backend_plugin.core.conditions import Condition
from backend_plugin.core.dialects.trainjob import options
from backend_plugin.core.dialects.trainjob.resource import LAUNCHER, ROLE, build_host_name
from backend_plugin.core.error_files import ErrorFile
from backend_plugin.core.job_conditions import ENDS
from backend_plugin.core.judging.error_parser import parse_replica_name
from backend_plugin.core.observed import Event, Job, Observed, Pod
from backend_plugin.core.values import Manifest
from kfpytorch_common.completion_indexes import contains_index

_RESTARTS: Final = frozenset({
    "RestartJobSetFailurePolicyAction",
    "RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction",
    *("BackoffLimitExceeded", "PodFailurePolicy"),
})  # fmt: skip
"""The reasons of events about a JobSet or a Job which show that its nodes have run."""
_RUNS: Final = frozenset({"Started", "Killing"})
"""The reasons of events about a pod which show that it has run."""
_OVER: Final = ("Succeeded", "Failed")
_STARTED: Final = ("Running", *_OVER)
_NEVER: Final = datetime.max.replace(tzinfo=timezone.utc)


def interpret(observed: Observed) -> Observed:
    """Return the observed state without replaced pods, and with conditions that Trainer does not report."""
    job = observed.job
    if job is None:
        return observed
    nodes = _select_current(observed.pods, ROLE)
    loading = [pod for role in job.initializers for pod in _select_current(observed.pods, role)]
    return structs.replace(
        observed,
        job=_with_course(job, nodes, observed.events),
        pods=_select_pods(job, observed.pods, nodes, loading),
        initializers=tuple(loading),
        error_files=_select_error_files(job, observed.error_files),
    )


def _select_pods(
    job: Job, pods: tuple[Pod, ...], nodes: Iterable[Pod], loading: Iterable[Pod]
) -> tuple[Pod, ...]:
    """Return the pods that determine the state of the job, all placeholder pods, and all pods without a role.

    The state depends on `nodes`, the present pods of the nodes, and on failed pods of roles other than nodes
    and initializers. After the end of the job, it also depends on the pods in `loading`, the present pods of
    the initializers, that have not succeeded.
    """
    kept = {pod.name for pod in nodes}
    if job.end_condition is not None:
        # An initializer is not a replica, but its failure may be the cause of the end.
        kept |= {pod.name for pod in loading if pod.phase != "Succeeded"}
    roles = (ROLE, *job.initializers)
    return tuple(pod for pod in pods if pod.name in kept or not _is_left_out(pod, roles))


def _is_left_out(pod: Pod, roles: Sequence[str]) -> bool:
    if not pod.role or pod.place:
        return False
    return pod.role in roles or pod.phase != "Failed"


def _select_error_files(job: Job, files: tuple[ErrorFile, ...]) -> tuple[ErrorFile, ...]:
    """Return the error files; for a succeeded job, only those of nodes that its success policy requires."""
    indexes, end = _read_options(job).succeeded_indexes, job.end_condition
    if indexes is None or end is None or end.type != job_conditions.SUCCEEDED:
        return files
    return tuple(file for file in files if _is_required(file, indexes))


def _is_required(file: ErrorFile, indexes: str) -> bool:
    node = parse_replica_name(file.worker).rpartition("-")[2]
    return not node.isdecimal() or contains_index(indexes, int(node))


def build_stop_spec(job: Job) -> Manifest | None:
    """Return {}, an empty change of the spec, if a job ends by itself when its pods have ended; else None.

    A job does not end by itself if the failure of a node may restart all nodes.
    """
    job_options = _read_options(job)
    return None if job_options.max_restarts or job_options.named_runtime else {}


def _read_options(job: Job) -> options.JobOptions:
    return options.decode(job.annotations.get(options.ANNOTATION, ""))


def _select_current(pods: Iterable[Pod], role: str) -> Sequence[Pod]:
    """Return the newest pod of each node; only pods created after the last restart of the whole job count."""
    replicas = [pod for pod in pods if pod.role == role and not pod.place]
    last = max((pod.attempt for pod in replicas), default=0)
    newest: dict[int, Pod] = {}
    for pod in replicas:
        if pod.attempt == last:
            newest[pod.index] = max(newest.get(pod.index, pod), pod, key=_get_age_key)
    return [*newest.values()]


def _get_age_key(pod: Pod) -> tuple[bool, bool, float, str]:
    created = pod.created.timestamp() if pod.created is not None else 0.0
    return pod.deleted is None, pod.phase not in _OVER, created, pod.name


def _with_course(job: Job, nodes: Sequence[Pod], events: Iterable[Event]) -> Job:
    derived = [*_derive_progress(job, nodes, events), *_derive_end(job, nodes)]
    return structs.replace(
        job,
        conditions=(*job.conditions, *derived),
        started=_find_full_set(job, nodes),
        unfinished=job.end_condition is None and any(each.type in ENDS for each in derived),
    )


def _find_full_set(job: Job, nodes: Sequence[Pod]) -> datetime | None:
    """Return the first time at which all nodes existed; None if some nodes have no pod.

    After a restart of the whole job this time is unknown, and the result is the creation time of the job.
    """
    if any(pod.attempt for pod in nodes):
        # With this earlier time, the present pods count as replacements.
        return job.created
    return _find_creation(nodes) if len(nodes) >= job.replicas else None


def _derive_progress(job: Job, nodes: Sequence[Pod], events: Iterable[Event]) -> Iterator[Condition]:
    """Yield the condition Running if a present pod has started, Restarting if only earlier pods have."""
    if any(pod.phase in _STARTED for pod in nodes):
        since = min(filter(None, [pod.run_start for pod in nodes]), default=None)
        yield Condition(type=job_conditions.RUNNING, true=True, since=since)
    elif _has_restarted(job, nodes, events) or _has_lost_nodes(job, nodes, events):
        yield Condition(type=job_conditions.RESTARTING, true=True, since=_find_creation(nodes))


def _has_restarted(job: Job, nodes: Iterable[Pod], events: Iterable[Event]) -> bool:
    loading = tuple(f"{job.name}-{role}-" for role in job.initializers)
    return any(pod.attempt for pod in nodes) or any(
        each.reason in _RESTARTS and not each.name.startswith(loading) for each in events
    )


def _has_lost_nodes(job: Job, nodes: Iterable[Pod], events: Iterable[Event]) -> bool:
    """True if an event shows that the job had nodes which have run and no longer exist."""
    present = {pod.name for pod in nodes}
    prefixes = tuple(build_host_name(job.name, role, 0).removesuffix("0") for role in (ROLE, LAUNCHER))
    return any(
        each.reason in _RUNS and each.name.startswith(prefixes) and each.name not in present
        for each in events
    )


def _derive_end(job: Job, nodes: Sequence[Pod]) -> Iterator[Condition]:
    """Yield a final condition that Trainer does not set: success of an elastic job, or too many restarts."""
    limits = _read_options(job)
    ended = _find_surplus_end(nodes, limits.min_nodes or 1) if job.scales else None
    attempt = max((pod.attempt for pod in nodes), default=0)
    most = math.inf if limits.max_disruptions is None else limits.max_restarts + limits.max_disruptions
    if ended is not None:
        kind, reason = job_conditions.SUCCEEDED, "NodesSucceeded"
        message = "all nodes of the training have succeeded"
        yield Condition(type=kind, true=True, reason=reason, message=message, since=ended)
    elif job.end_condition is None and not limits.named_runtime and attempt > most:
        kind, reason = job_conditions.FAILED, "DisruptionLimitExceeded"
        message = f"all nodes were restarted {attempt} times, after failures and disruptions"
        yield Condition(type=kind, true=True, reason=reason, message=message, since=_find_creation(nodes))


def _find_creation(nodes: Iterable[Pod]) -> datetime | None:
    return max((pod.created for pod in nodes if pod.created is not None), default=None)


def _find_surplus_end(nodes: Sequence[Pod], least: int) -> datetime | None:
    """Return the time at which the last node of an elastic job succeeded; None if the training has not ended.

    The training has ended if `least` nodes succeeded, and no other node started before the first success.
    Nodes that start later use the released resources, but cannot join the training any more.
    """
    done = [pod for pod in nodes if pod.phase == "Succeeded"]
    ends = [*filter(None, [pod.termination.finished for pod in done if pod.termination is not None])]
    starts = [pod.run_start for pod in nodes if pod.phase != "Succeeded"]
    has_ended = len(done) >= least and min(ends, default=_NEVER) < min(filter(None, starts), default=_NEVER)
    return max(ends) if has_ended else None
