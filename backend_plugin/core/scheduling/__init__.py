"""Gang scheduling: the selection of a scheduler for a job, and the fields and objects that it requires.

`selection` chooses the scheduler, `schedulers` has one module for each, and `registry` lists them by name.
"""

from collections.abc import Sequence

from backend_plugin.core.errors import collect_problems
from backend_plugin.core.job import TrainingJob
from backend_plugin.core.observed import read_job
from backend_plugin.core.scheduling import (
    adapter,
    adapter_composition,
    companions,
    gang_annotation,
    gang_options,
)
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities
from backend_plugin.core.scheduling.gang_settings import GangSettings
from backend_plugin.core.scheduling.registry import ADAPTERS
from backend_plugin.core.values import Manifest

__all__ = ["GangSettings", "build_manifests"]


def build_manifests(
    job: TrainingJob, manifest: Manifest, chosen: GangSettings, found: Capabilities = NOTHING
) -> Sequence[Manifest]:
    """Return the job manifest with the fields of its gang scheduler, followed by its companion objects.

    The owner references of the companion objects contain a placeholder instead of the uid of the job.

    Raises:
        InvalidTask: If a label, annotation or field of the job or its pods contradicts the gang.
    """
    how = gang_options.find_adapter(job, chosen)
    if how is None:
        return (manifest,)
    gang = gang_options.build_gang(job, manifest, chosen, how, found)
    with collect_problems() as problems:
        problems.extend(adapter.check_conflicts(manifest, gang, how))
        problems.extend(adapter_composition.check_other_schedulers(manifest, chosen.scheduler, ADAPTERS))
    whole = companions.annotate_companions(
        adapter.with_scheduling(manifest, gang, how), how.build_companions(gang)
    )
    whole = gang_annotation.annotate_gang(whole, gang, how)
    return (whole, *companions.read_companions(read_job(whole)))
