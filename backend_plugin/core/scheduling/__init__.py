"""Gang scheduling: the selection of a scheduler for a job, and the fields and objects that it requires."""

from dataclasses import replace

from backend_plugin.core.dialects.table import get_dialect
from backend_plugin.core.errors import collect_problems
from backend_plugin.core.job import TrainingJob
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.scheduling import (
    adapter,
    companions,
    foreign_fields,
    gang_annotation,
    gang_options,
)
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.gang_settings import GangSettings


def add_gang(
    job: TrainingJob,
    draft: JobDraft,
    chosen: GangSettings,
    found: Capabilities,
) -> JobDraft:
    """Return the draft with the fields for its gang scheduler; unchanged if no scheduler applies to the job.

    If this server creates the pod group, an annotation of the job stores it. Raise `InvalidTask` if a label,
    annotation or field of the job or its pods contradicts the gang.
    """
    how = gang_options.find_adapter(job, chosen)
    if how is None:
        return draft
    if gang_options.derives_gang_size(chosen, get_dialect(draft.dialect)):
        how = replace(how, counts_all=True)
    gang = gang_options.build_gang(job, draft, chosen, how, found)
    with collect_problems() as problems:
        problems.extend(adapter.check_conflicts(draft, gang, how))
        problems.extend(foreign_fields.check_other_schedulers(draft, chosen.scheduler))
    annotations = {gang_annotation.ANNOTATION: gang_annotation.encode_gang(gang, how)}
    if how.companion is not None:
        annotations[companions.ANNOTATION] = companions.encode(how.companion, gang)
    return adapter.with_scheduling(draft, gang, how, annotations)
