"""A job whose replicas start all together or wait, for the scheduler that the platform has.

requests: what a pod asks for.
gang: who must find a place, and what they need.
adapter: what a scheduler has to be told, and how a job says it.
schedulers: a module for each of them; table: their names.
companions: the objects beside the job.
platform: the settings of it.
wishes: what the author says, against what the platform has.
"""

from collections.abc import Sequence

from backend_plugin.core.errors import gathered
from backend_plugin.core.job import TrainingJob
from backend_plugin.core.observed import read_job
from backend_plugin.core.scheduling import adapter, companions, wishes
from backend_plugin.core.scheduling.platform import Ganging
from backend_plugin.core.values import Manifest

__all__ = ["Ganging", "manifests"]


def manifests(job: TrainingJob, manifest: Manifest, platform: Ganging) -> Sequence[Manifest]:
    """The job as its scheduler wants it, then the objects beside it, which name it by no uid yet.

    Raises:
        InvalidTask: If its pods say something else of their scheduling.
    """
    how = wishes.adapter_of(job, platform)
    if how is None:
        return (manifest,)
    gang = wishes.gang(job, manifest, platform, how)
    with gathered() as problems:
        problems.extend(adapter.contradictions(manifest, gang, how))
    whole = companions.carried(adapter.decorated(manifest, gang, how), how.companions(gang))
    return (whole, *companions.of(read_job(whole)))
