"""A job whose replicas start all together or wait, for the scheduler that the platform has.

requests: what a pod asks for.
gang: who must find a place, and what they need.
findings: what a cluster is found to have.
words: what a scheduler says of those who wait for it.
adapter: what a scheduler has to be told, and how a job says it.
operated: what an operator that makes groups means for it.
schedulers: a module for each of them; table: their names.
combination: two of them for one job.
companions: the objects beside the job.
asks: what a gang asks for, as the job carries it.
platform: the settings of it.
selection: which of them a job is for, and why.
wishes: what the author says of it.
missing_gang: warnings about jobs that need a gang and have none.
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
    """The job as its scheduler wants it, then the objects beside it, which name it by no uid yet.

    Raises:
        InvalidTask: If its pods say something else of their scheduling.
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
