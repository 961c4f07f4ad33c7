"""Validation of the topology of a TrainJob, which depends on the scheduler of its gang."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import TrainingJob
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.scheduling.gang_settings import GangSettings
from backend_plugin.core.train_job_options import EXCLUSIVE

_PATH: Final = "custom.kfpytorch.trainJob.topology.mode"


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
            yield build_problem(_PATH, mode, message, 'leave topology out, or use Gang(scheduler="none")')
    elif not chosen.is_queued:
        remedy = f'write {EXCLUSIVE}, or use Gang(scheduler="kueue")'
        yield build_problem(_PATH, mode, "needs Kueue, and the job is in no queue of it", remedy)
