"""When an object of a cluster became what it is, as far as it says so itself."""

from datetime import datetime

from backend_plugin.core.observed import Job, Pod


def told_at(record: Job | Pod) -> datetime | None:
    """The latest time that it tells of, in whole seconds: it has not become so before."""
    if isinstance(record, Job):
        times = [record.created, record.completed, *(each.since for each in record.conditions)]
    else:
        container = record.primary
        ended = container.ended if container else None
        times = [
            record.created,
            record.deleted,
            record.ready.since if record.ready else None,
            container.running_since if container else None,
            ended.finished if ended else None,
        ]
    return max((each for each in times if each is not None), default=None)
