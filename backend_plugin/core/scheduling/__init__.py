"""Gang scheduling: the selection of a scheduler for a job, and the fields and objects that it requires.

`selection` chooses the scheduler, `schedulers` has one module for each, and `table` lists them by name.
"""

from collections.abc import Sequence

from backend_plugin.core.errors import gathered
from backend_plugin.core.job import TrainingJob
from backend_plugin.core.observed import read_job
from backend_plugin.core.scheduling import adapter, asks, combination, companions, wishes
from backend_plugin.core.scheduling.findings import NOTHING, Findings
from backend_plugin.core.scheduling.platform import Ganging
from backend_plugin.core.scheduling.table import ADAPTERS
from backend_plugin.core.values import Manifest

__all__ = ["Ganging", "manifests"]


def manifests(
    job: TrainingJob, manifest: Manifest, chosen: Ganging, found: Findings = NOTHING
) -> Sequence[Manifest]:
    """Return the job manifest with the fields of its gang scheduler, followed by its companion objects.

    The owner references of the companion objects contain a placeholder instead of the uid of the job.

    Raises:
        InvalidTask: If a label, annotation or field of the job or its pods contradicts the gang.
    """
    how = wishes.adapter_of(job, chosen)
    if how is None:
        return (manifest,)
    gang = wishes.gang(job, manifest, chosen, how, found)
    with gathered() as problems:
        problems.extend(adapter.contradictions(manifest, gang, how))
        problems.extend(combination.strangers(manifest, chosen.scheduler, ADAPTERS))
    whole = companions.carried(adapter.decorated(manifest, gang, how), how.companions(gang))
    whole = asks.carried(whole, gang, how)
    return (whole, *companions.of(read_job(whole)))
