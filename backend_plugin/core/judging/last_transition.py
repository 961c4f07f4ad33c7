"""The time of the last recorded change of a job or a pod."""

from datetime import datetime

from backend_plugin.core.observed import Job, Pod


def get_last_transition_time(record: Job | Pod) -> datetime | None:
    """Return the latest timestamp in the metadata and status of a job or pod; None if it has none.

    The present state may have begun later, because not every change has a timestamp. The resolution is one
    second.
    """
    if isinstance(record, Job):
        times = [record.created, record.completed, *(each.since for each in record.conditions)]
        return max((each for each in times if each is not None), default=None)
    latest, ready, container = record.created, record.ready, record.primary
    # A plain loop is fastest, and this runs for each change of a pod.
    for at in (
        record.deleted,
        ready.since if ready is not None else None,
        container.running_since if container is not None else None,
        container.ended.finished if container is not None and container.ended is not None else None,
    ):
        if at is not None and (latest is None or at > latest):
            latest = at
    return latest
