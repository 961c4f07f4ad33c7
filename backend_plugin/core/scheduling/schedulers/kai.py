"""The KAI scheduler, which groups the pods of a PyTorchJob by itself; it is told how many must find a place.

Queue and priority are labels of the job.
"""

from typing import Final

from backend_plugin.core.scheduling.adapter import MIN_MEMBER, QUEUE, SCHEDULER_NAME, Adapter, Marks
from backend_plugin.core.scheduling.gang import Gang


def _marks(gang: Gang) -> Marks:
    labels = {"kai.scheduler/queue": gang.queue, "priorityClassName": gang.priority_class_name}
    return Marks(
        job_labels={key: value for key, value in labels.items() if value},
        run_policy={"schedulingPolicy": {"minAvailable": gang.min_member}},
        scheduler_name=gang.scheduler_name,
    )


STYLES: Final = {
    "": Adapter(
        marks=_marks,
        scheduler_name="kai-scheduler",
        understands=frozenset({QUEUE, MIN_MEMBER, SCHEDULER_NAME}),
    ),
}
