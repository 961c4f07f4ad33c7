"""Kueue, which lets a job begin when its queue has room for all of it; where its pods go others decide.

Its priorities are WorkloadPriorityClasses. It counts all replicas, also of an elastic job.
"""

from typing import Final

from backend_plugin.core.scheduling.adapter import QUEUE, Adapter, Marks
from backend_plugin.core.scheduling.gang import Gang

_PREFIX: Final = "kueue.x-k8s.io/"


def _marks(gang: Gang) -> Marks:
    labels = {f"{_PREFIX}queue-name": gang.queue, f"{_PREFIX}priority-class": gang.priority_class_name}
    return Marks(
        job_labels={key: value for key, value in labels.items() if value},
        # Its webhook would do so, too; a job that it has missed waits instead of taking what is not its own.
        run_policy={"suspend": True},
    )


STYLES: Final = {
    "": Adapter(marks=_marks, understands=frozenset({QUEUE}), takes_singles=True, needs_queue=True),
}
