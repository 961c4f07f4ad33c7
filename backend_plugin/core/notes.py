"""Job warnings about missing schedulers and pod groups, which no Kubernetes object reports.

`judgement` decides when a warning has lasted long enough. Warnings of one scheduler are in its own module.
"""

from collections.abc import Iterator, Sequence

from backend_plugin.core.observed import Job, Observed, Pod
from backend_plugin.core.scheduling import asks
from backend_plugin.core.scheduling.asks import Asks
from backend_plugin.core.scheduling.table import WORDS, is_controlled
from backend_plugin.core.waits import Note


def notes(observed: Observed, pods: Sequence[Pod]) -> tuple[Note, ...]:
    """Return the warnings of a job that has not ended; `pods` are its replicas."""
    job = observed.job
    gang = asks.of(job.annotations) if job is not None else asks.NOBODY
    told = [note for words in WORDS for note in words.notes(observed)]
    return (*told, *_foreign(observed), *_unserved(observed, pods, gang), *_ungrouped(observed, job, gang))


def _foreign(observed: Observed) -> Iterator[Note]:
    for group in observed.pod_groups:
        if group.foreign:
            yield Note(
                said=f"a {group.kind} {group.name} was there before the job, and is not the job's: it can"
                " have no group; delete that one, or start another attempt",
            )


def _unserved(observed: Observed, pods: Sequence[Pod], gang: Asks) -> Iterator[Note]:
    """Yield a warning if no scheduler has set a condition or event on the pending pods.

    Placeholder pods show that a scheduler runs, as does a status or an event of the pod group.
    """
    heard = {event.name for event in observed.events if event.kind == "Pod"}
    waiting = [pod for pod in pods if pod.phase == "Pending" and not pod.placed and pod.deleted is None]
    silent = [pod for pod in waiting if pod.scheduled is None and pod.name not in heard]
    spoken = len(silent) < len(waiting) or any(not pod.role for pod in observed.pods)
    if silent and not spoken and not _is_group_heard_of(observed):
        name = f"is there a scheduler called {gang.scheduler_name}" if gang.scheduler_name else ""
        yield Note(
            said="no scheduler has said a word of its pods: "
            f"{name or 'is there one that goes by the schedulerName of these pods'}, and does it run?",
            since=max((pod.created for pod in silent if pod.created is not None), default=None),
        )


def _is_group_heard_of(observed: Observed) -> bool:
    """True if a scheduler has written a status or an event of the pod group."""
    groups = [group for group in observed.pod_groups if group.kind == "PodGroup" and not group.foreign]
    written = [group for group in groups if not is_controlled(group)]
    # An event does not contain the API group of its PodGroup.
    told = len(written) == len(groups) and any(event.kind == "PodGroup" for event in observed.events)
    return told or any(group.phase or group.conditions or group.limits for group in written)


def _ungrouped(observed: Observed, job: Job | None, gang: Asks) -> Iterator[Note]:
    """Yield a warning if the operator has created neither pods nor a pod group, which it only logs."""
    if job is None or not gang.by_operator or job.started is not None or observed.pods:
        return
    if observed.pod_groups or any(each.true and each.type == "Suspended" for each in job.conditions):
        return
    queue = f"; is there a queue {gang.queue}, and is it open?" if gang.queue else ""
    yield Note(
        said=f"its operator has made neither a PodGroup nor pods, and says why in its own log only{queue}",
        since=job.created,
    )
