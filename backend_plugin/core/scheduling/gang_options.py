"""The gang of a job and its topology, from the options of its author and the settings of the platform."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from backend_plugin.core import names
from backend_plugin.core.decoding.replica_specs import check_gang
from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.dialects.table import get_dialect
from backend_plugin.core.errors import Problem, collect_problems
from backend_plugin.core.job import GangOptions, TrainingJob
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_text
from backend_plugin.core.scheduling import adapter, companions, foreign_fields, gang_annotation
from backend_plugin.core.scheduling.adapter import MIN_MEMBER, QUEUE
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.gang import GangSpec, build_gang_roles, build_initializer_requests
from backend_plugin.core.scheduling.gang_settings import GangSettings
from backend_plugin.core.scheduling.pod_requests import Amounts
from backend_plugin.core.schema_check import parse_amounts
from backend_plugin.core.train_job_options import EXCLUSIVE
from kfpytorch_common import labels

_PATH: Final = "custom.kfpytorch.gang"
_QUEUE: Final = f"{_PATH}.queue"
_MODE: Final = "custom.kfpytorch.trainJob.topology.mode"


def check_gang_options(job: TrainingJob, chosen: GangSettings, dialect: Dialect) -> Iterator[Problem]:
    """Yield a problem for each gang option of the author that the selected scheduler does not support."""
    options, how = job.gang, chosen.adapter
    if how is None:
        return
    yield from _check_group_size(job, chosen, dialect)
    values = (("queue", QUEUE, options.queue), ("minMember", MIN_MEMBER, options.min_member))
    for field, needed, value in values:
        if value is not None and needed not in how.understands:
            message = f"is not supported by {chosen.scheduler}"
            yield build_problem(f"{_PATH}.{field}", value, message, "leave it out")
    yield from _check_queue(options.queue, chosen, is_required=how.needs_queue)


def derives_gang_size(chosen: GangSettings, dialect: Dialect) -> bool:
    """True if the scheduler derives the size of a gang from the job, so that all replicas are members."""
    how = chosen.adapter
    return how is not None and how.groups_all_jobs and not dialect.creates_pod_groups


def _check_group_size(job: TrainingJob, chosen: GangSettings, dialect: Dialect) -> Iterator[Problem]:
    least, replicas = job.gang.min_member, sum(group.replicas for group in job.groups)
    if least is None or least >= replicas or not derives_gang_size(chosen, dialect):
        return
    if not any(check_gang(job.gang, replicas, job.elastic, job.framework)):
        message = f"is not supported by {chosen.scheduler} for a {dialect.resource.kind}"
        remedy = f"leave it out: all {replicas} start together"
        yield build_problem(f"{_PATH}.minMember", least, message, remedy)


def _check_queue(queue: str | None, chosen: GangSettings, *, is_required: bool) -> Iterator[Problem]:
    if queue is not None and not labels.is_value(queue):
        yield build_problem(_QUEUE, queue, "is not the name of a queue", f"write {labels.VALUE}")
    if is_required and not (queue or chosen.queue):
        message = f"is required by {chosen.scheduler}, and this platform has no default"
        yield build_problem(_QUEUE, "", message, "write Gang(queue=...)")


def check_topology(job: TrainingJob, chosen: GangSettings) -> Iterator[Problem]:
    """Yield a problem if the selected scheduler does not support the topology of the job."""
    topology = job.train_options.topology
    if topology is None:
        return
    mode = topology.get_mode(queued=chosen.is_queued)
    if mode == EXCLUSIVE:
        if chosen.adapter is not None and not chosen.adapter.admits:
            message = (
                f"cannot be used with {chosen.scheduler}: JobSet creates the other pods when the first one "
                "has a node, and a gang gets nodes when all of its pods exist"
            )
            yield build_problem(_MODE, mode, message, 'leave topology out, or use Gang(scheduler="none")')
    elif not chosen.is_queued:
        remedy = f'write {EXCLUSIVE}, or use Gang(scheduler="kueue")'
        yield build_problem(_MODE, mode, "needs Kueue, and the job is in no queue of it", remedy)


def add_gang(job: TrainingJob, draft: JobDraft, chosen: GangSettings, cluster: Capabilities) -> JobDraft:
    """Return the draft with the fields for its gang scheduler; unchanged if no scheduler applies to the job.

    If this server creates the pod group, an annotation of the job stores it. Raise `InvalidTask` if a label,
    annotation or field of the job or its pods contradicts the gang.
    """
    how = _find_adapter(job, chosen)
    if how is None:
        return draft
    if derives_gang_size(chosen, get_dialect(draft.dialect)):
        how = replace(how, counts_all=True)
    defaults = parse_amounts(cluster.container_defaults)
    gang = _build_gang(job, draft, chosen, chosen.scheduler_name or how.scheduler_name, defaults)
    with collect_problems() as problems:
        problems.extend(adapter.check_conflicts(draft, gang, how))
        problems.extend(foreign_fields.check_other_schedulers(draft, chosen.scheduler))
    annotations = {gang_annotation.ANNOTATION: gang_annotation.encode_gang(gang, how)}
    if how.companion is not None:
        annotations[companions.ANNOTATION] = companions.encode(how.companion, gang)
    return adapter.with_scheduling(draft, gang, how, annotations)


def _find_adapter(job: TrainingJob, chosen: GangSettings) -> adapter.SchedulerAdapter | None:
    how = chosen.adapter
    if how is None or how.takes_singles or sum(group.replicas for group in job.groups) != 1:
        return how
    return how.of_singles


def _build_gang(
    job: TrainingJob, draft: JobDraft, chosen: GangSettings, scheduler_name: str, defaults: Amounts
) -> GangSpec:
    options, metadata = job.gang, draft.metadata
    queue, admission = _select_queues(options, chosen)
    return GangSpec(
        name=get_text(metadata, "name"),
        namespace=get_text(metadata, "namespace"),
        members=build_gang_roles(job, draft, defaults),
        identity={names.IDENTITY: get_text(metadata, "labels", names.IDENTITY)},
        scheduler_name=scheduler_name,
        queue=queue,
        admission_queue=admission,
        priority_class_name=options.priority_class_name or "",
        timeout_seconds=int(chosen.schedule_timeout.total_seconds()) or None,
        initializers=build_initializer_requests(job, draft, defaults),
    )


def _select_queues(options: GangOptions, chosen: GangSettings) -> tuple[str, str]:
    """Return the queue of the gang scheduler, and the admission queue (of Kueue); empty if there is none.

    The queue of the author replaces the admission queue of the settings. If the settings have no admission
    queue, the author's queue replaces the queue of the gang scheduler.
    """
    if options.queue and chosen.local_queue:
        return chosen.queue, options.queue
    return options.queue or chosen.queue, chosen.local_queue
