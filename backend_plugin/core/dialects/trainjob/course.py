"""The course of a TrainJob, derived from its pods: Trainer reports neither a start nor a restart.

It also derives two ends that Trainer does not see: that of an elastic job whose surplus nodes were never
placed, and that of a job with more disruptions than the platform allows.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from msgspec import structs

from backend_plugin.core import job_conditions
from backend_plugin.core.conditions import Condition
from backend_plugin.core.dialects.trainjob import options
from backend_plugin.core.dialects.trainjob.resource import ROLE
from backend_plugin.core.job_conditions import ENDS
from backend_plugin.core.observed import Event, Job, Observed, Pod
from backend_plugin.core.values import Manifest

RESTARTS = frozenset({
    "RestartJobSetFailurePolicyAction",
    "RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction",
    "BackoffLimitExceeded",
    "PodFailurePolicy",
})  # fmt: skip
"""The reasons of events after which no pod may exist until all nodes are created again."""
_OVER = ("Succeeded", "Failed")


def interpret(observed: Observed) -> Observed:
    """Return the observed state with the current pods only, and with the derived conditions of the job."""
    job = observed.job
    if job is None:
        return observed
    nodes = _select_current([pod for pod in observed.pods if _is_node(pod)])
    superseded = {pod.name for pod in observed.pods if _is_node(pod)} - {pod.name for pod in nodes}
    pods = tuple(pod for pod in observed.pods if pod.name not in superseded) if superseded else observed.pods
    return structs.replace(observed, job=_with_course(job, nodes, observed.events), pods=pods)


def build_stop_spec(job: Job) -> Manifest | None:
    """Return no change if the end of its pods ends the job; None if it would be restarted then."""
    return None if _read_options(job).max_restarts else {}


def _read_options(job: Job) -> options.JobOptions:
    return options.decode(job.annotations.get(options.ANNOTATION, ""))


def _is_node(pod: Pod) -> bool:
    return pod.role == ROLE and not pod.place


def _select_current(pods: Sequence[Pod]) -> Sequence[Pod]:
    """Return the newest pod of each node, of the last attempt."""
    last = max((pod.attempt for pod in pods), default=0)
    newest: dict[int, Pod] = {}
    for pod in pods:
        other = newest.get(pod.index)
        if pod.attempt == last and (other is None or _get_age_key(other) < _get_age_key(pod)):
            newest[pod.index] = pod
    return [*newest.values()]


def _get_age_key(pod: Pod) -> tuple[bool, bool, float, str]:
    created = pod.created.timestamp() if pod.created is not None else 0.0
    return pod.deleted is None, pod.phase not in _OVER, created, pod.name


def _with_course(job: Job, nodes: Sequence[Pod], events: Iterable[Event]) -> Job:
    created = [pod.created for pod in nodes if pod.created is not None]
    derived = list(_derive_conditions(job, nodes, events))
    return structs.replace(
        job,
        conditions=(*job.conditions, *derived),
        started=max(created) if created and len(nodes) >= job.replicas else None,
        unfinished=any(each.type in ENDS for each in derived),
    )


def _derive_conditions(job: Job, nodes: Sequence[Pod], events: Iterable[Event]) -> Iterator[Condition]:
    began = [moment for pod in nodes if (moment := _find_start(pod)) is not None]
    attempt = max((pod.attempt for pod in nodes), default=0)
    is_restarting = not nodes and any(each.reason in RESTARTS for each in events)
    if any(pod.phase == "Running" or pod.phase in _OVER for pod in nodes):
        yield Condition(type=job_conditions.RUNNING, true=True, since=min(began, default=None))
    elif attempt or is_restarting:
        yield Condition(type=job_conditions.RESTARTING, true=True, since=_find_creation(nodes))
    if job.end_condition is not None:
        return
    limit = _read_options(job)
    if limit.max_disruptions is not None and attempt > limit.max_restarts + limit.max_disruptions:
        said = f"all nodes were restarted {attempt} times, after failures and disruptions"
        yield Condition(
            type=job_conditions.FAILED,
            true=True,
            reason="DisruptionLimitExceeded",
            message=said,
            since=_find_creation(nodes),
        )
    elif job.scales and (ended := _find_surplus_end(nodes, limit.min_nodes or 1)) is not None:
        said = "all nodes that were placed have succeeded"
        yield Condition(
            type=job_conditions.SUCCEEDED, true=True, reason="NodesSucceeded", message=said, since=ended
        )


def _find_start(pod: Pod) -> datetime | None:
    container = pod.primary
    if container is None:
        return None
    return container.running_since or (container.ended.started if container.ended else None)


def _find_creation(nodes: Iterable[Pod]) -> datetime | None:
    return max((pod.created for pod in nodes if pod.created is not None), default=None)


def _find_surplus_end(nodes: Sequence[Pod], least: int) -> datetime | None:
    """Return the time at which the last placed node has succeeded; None if one may still run or start."""
    done = [pod for pod in nodes if pod.phase == "Succeeded"]
    rest = [pod for pod in nodes if pod.phase != "Succeeded"]
    if len(done) < least or any(pod.is_bound or pod.phase != "Pending" for pod in rest):
        return None
    ends = [
        pod.primary.ended.finished
        for pod in done
        if pod.primary is not None
        and pod.primary.ended is not None
        and pod.primary.ended.finished is not None
    ]
    return max(ends, default=None)
