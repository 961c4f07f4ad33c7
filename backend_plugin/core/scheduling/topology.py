"""Validation of the topology of a TrainJob, which depends on the scheduler of its gang."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import EXCLUSIVE, TrainingJob
from backend_plugin.core.protojson import format_value
from backend_plugin.core.scheduling.adapter_composition import find_admission_adapter
from backend_plugin.core.scheduling.gang_settings import GangSettings
from backend_plugin.core.scheduling.registry import ADAPTERS

_PATH: Final = "custom.kfpytorch.trainJob.topology.mode"


def check_topology(job: TrainingJob, chosen: GangSettings) -> Iterator[Problem]:
    """Yield a problem if the selected scheduler does not support the topology of the job."""
    topology = job.train_job.topology if job.train_job is not None else None
    if topology is None:
        return
    admission = find_admission_adapter(ADAPTERS)
    admits = admission is not None and chosen.scheduler == admission[0]
    queued = admits or bool(chosen.local_queue)
    mode = topology.get_mode(queued=queued)
    if mode == EXCLUSIVE and chosen.adapter is not None and not admits:
        yield Problem(
            field=_PATH,
            value=format_value(mode),
            message=(
                f"cannot be used with {chosen.scheduler}: JobSet creates the other pods when the first one "
                "has a node, and a gang gets nodes when all of its pods exist"
            ),
            remedy='leave topology out, or use Gang(scheduler="none")',
        )
    elif mode != EXCLUSIVE and not queued:
        yield Problem(
            field=_PATH,
            value=format_value(mode),
            message="needs Kueue, and the job is in no queue of it",
            remedy=f'write {EXCLUSIVE}, or use Gang(scheduler="kueue")',
        )
