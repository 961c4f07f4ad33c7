"""What an author says of the gang, against what the platform has: the author wins, where the two agree.

Lives here: which scheduler a job is for, and what it is told. Does not: how it is told; see `adapter`.
"""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core import job as vocabulary
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import TrainingJob
from backend_plugin.core.protojson import shown
from backend_plugin.core.reading import section, text
from backend_plugin.core.scheduling.adapter import MIN_MEMBER, QUEUE, Adapter
from backend_plugin.core.scheduling.gang import Gang, members
from backend_plugin.core.scheduling.platform import NONE, OPERATOR, Ganging
from backend_plugin.core.values import Manifest
from kfpytorch_common import labels

_PATH: Final = "custom.kfpytorch.gang"


def problems(job: TrainingJob, platform: Ganging) -> Iterator[Problem]:
    """What the platform cannot do of what the author wants."""
    said = job.gang or vocabulary.Gang()
    offered = _offered(platform)
    if said.scheduler is not None and said.scheduler not in offered:
        message = "is not a gang scheduler that a job can have on this platform"
        yield _problem("scheduler", said.scheduler, message, f"leave it out, or write {' or '.join(offered)}")
        return
    adapter = platform.adapter
    if adapter is None or said.scheduler == NONE:
        return
    values = {"queue": (QUEUE, said.queue), "minMember": (MIN_MEMBER, said.min_member)}
    for field, (needed, value) in values.items():
        if value is not None and needed not in adapter.understands:
            yield _problem(field, value, f"means nothing to {platform.scheduler}", "leave it out")
    if said.queue is not None and not labels.is_value(said.queue):
        yield _problem("queue", said.queue, "is not the name of a queue", f"write {labels.VALUE}")
    if adapter.needs_queue and not (said.queue or platform.queue):
        message = f"is needed by {platform.scheduler}, and this platform has none for all"
        yield _problem("queue", "", message, "write Gang(queue=...)")


def adapter_of(job: TrainingJob, platform: Ganging) -> Adapter | None:
    """How the job is told of its gang; None where it is none."""
    adapter = platform.adapter
    if adapter is None or (job.gang is not None and job.gang.scheduler == NONE):
        return None
    is_single = sum(group.replicas for group in job.groups) == 1
    return adapter if not is_single or adapter.takes_singles else None


def gang(job: TrainingJob, manifest: Manifest, platform: Ganging, adapter: Adapter) -> Gang:
    """The gang of a job that has become this PyTorchJob."""
    said = job.gang or vocabulary.Gang()
    metadata = section(manifest, "metadata")
    return Gang(
        name=text(metadata, "name"),
        namespace=text(metadata, "namespace"),
        members=members(job, manifest),
        scheduler_name=platform.scheduler_name or adapter.scheduler_name,
        queue=said.queue or platform.queue,
        priority_class_name=said.priority_class_name or "",
        timeout_seconds=int(platform.timeout.total_seconds()) or None,
    )


def _offered(platform: Ganging) -> tuple[str, ...]:
    """The operator gangs every job, so that nobody can do without."""
    if platform.adapter is None:
        return (NONE,)
    return (platform.scheduler,) if platform.style == OPERATOR else (platform.scheduler, NONE)


def _problem(key: str, value: object, message: str, remedy: str) -> Problem:
    return Problem(field=f"{_PATH}.{key}", value=shown(value), message=message, remedy=remedy)
