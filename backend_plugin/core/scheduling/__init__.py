"""Gang scheduling: the selection of a scheduler for a job, and the fields and objects that it requires."""

from collections.abc import Callable
from dataclasses import replace

from msgspec import structs

from backend_plugin.core.errors import collect_problems
from backend_plugin.core.job import TrainingJob
from backend_plugin.core.plan import JobDraft, build_no_companions
from backend_plugin.core.reading import get_mapping
from backend_plugin.core.scheduling import (
    adapter,
    companions,
    foreign_fields,
    gang_annotation,
    gang_options,
)
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities
from backend_plugin.core.scheduling.companions import CompanionBuilder
from backend_plugin.core.scheduling.gang_settings import GangSettings
from backend_plugin.core.values import JsonValue, Manifest

__all__ = ["GangSettings", "add_gang"]


def add_gang(
    job: TrainingJob,
    draft: JobDraft,
    chosen: GangSettings,
    found: Capabilities = NOTHING,
    *,
    counts_all: bool = False,
) -> tuple[JobDraft, Callable[[str], tuple[Manifest, ...]]]:
    """Return the draft with the fields for its gang scheduler, and a function that builds companion objects.

    A companion object is an object that the server creates beside a job for its gang scheduler: a PodGroup.
    The argument of the function is the uid of the job, which owns the object. If no gang scheduler applies to
    the job, the draft is unchanged, and there are no companion objects. With `counts_all`, the gang has all
    replicas of an elastic job.

    Raises:
        InvalidTask: If a label, annotation or field of the job or its pods contradicts the gang.
    """
    how = gang_options.find_adapter(job, chosen)
    if how is None:
        return draft, build_no_companions
    if counts_all:
        how = replace(how, counts_all=True)
    gang = gang_options.build_gang(job, draft, chosen, how, found)
    with collect_problems() as problems:
        problems.extend(adapter.check_conflicts(draft, gang, how))
        problems.extend(foreign_fields.check_other_schedulers(draft, chosen.scheduler))
    made = how.companion
    objects: list[Manifest] = []
    if made is not None:
        objects = [{"apiVersion": made.api_version, "kind": made.kind, "spec": made.spec(gang)}]
    annotations: dict[str, JsonValue] = {gang_annotation.ANNOTATION: gang_annotation.encode_gang(gang, how)}
    if objects:
        annotations[companions.ANNOTATION] = companions.encode(objects)
    full_draft = adapter.with_scheduling(draft, gang, how)
    metadata = full_draft.metadata
    annotations = {**get_mapping(metadata, "annotations"), **annotations}
    full_draft = structs.replace(full_draft, metadata={**metadata, "annotations": annotations})
    return full_draft, CompanionBuilder(
        dialect=draft.dialect,
        namespace=gang.namespace,
        job=gang.name,
        output_prefix=job.run.output_prefix,
        objects=objects,
    )
