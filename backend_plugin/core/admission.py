"""Detection of the first admission of a job by a queue, from the objects alone."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from backend_plugin.core.observed import Job, Pod

CREATION: Final = timedelta(seconds=5)
"""The longest time from the start time of a resumed job to the creation of its last pod."""
_RESUMED: Final = 2
"""The generation of a job that was created suspended, and whose spec has changed once since."""


def is_first_admission(job: Job, pods: Sequence[Pod]) -> bool:
    """True if the job was created suspended and resumed once, and no pod has been replaced since."""
    if job.started is None or job.generation != _RESUMED:
        return False
    return all(pod.created is not None and pod.created - job.started <= CREATION for pod in pods)
