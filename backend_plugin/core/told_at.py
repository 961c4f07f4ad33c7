"""When an object of a cluster became what it is, as far as it says so itself."""

from datetime import datetime

from backend_plugin.core.observed import Job, Pod


def told_at(record: Job | Pod) -> datetime | None:
    """The latest time that it tells of, in whole seconds: it has not become so before."""
    if isinstance(record, Job):
        times = [record.created, record.completed, *(each.since for each in record.conditions)]
        return max((each for each in times if each is not None), default=None)
    latest, ready, container = record.created, record.ready, record.primary
    # Step by step, for it is asked of every change of a pod.
    for at in (
        record.deleted,
        ready.since if ready is not None else None,
        container.running_since if container is not None else None,
        container.ended.finished if container is not None and container.ended is not None else None,
    ):
        if at is not None and (latest is None or at > latest):
            latest = at
    return latest
