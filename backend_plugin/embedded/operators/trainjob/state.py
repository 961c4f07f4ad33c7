"""The state of the JobSet and the Job of a TrainJob. It is stored in the status of the TrainJob.

A TrainJob in Kubernetes has no field `jobSet`: the JobSet and the Job are objects of their own there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.reading import get_int, get_mapping, get_text
from backend_plugin.core.values import Manifest

FIELD: Final = "jobSet"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSetState:
    """The state of the JobSet and of its current Job."""

    restarts: int = 0
    counted: int = 0
    """The number of restarts that count towards `maxRestarts`."""
    completed: Sequence[int] = ()
    """The completed indexes of the Job."""
    failure: Manifest | None = None
    """The reason and message with which the Job fails when its last pod has ended."""

    @classmethod
    def from_status(cls, status: Manifest) -> "JobSetState":
        """Read the state from the status of a TrainJob."""
        record = get_mapping(status, FIELD)
        completed, failure = record.get("completedIndexes"), get_mapping(record, "failure")
        return cls(
            restarts=get_int(record, "restarts") or 0,
            counted=get_int(record, "restartsCountTowardsMax") or 0,
            completed=tuple(each for each in completed if isinstance(each, int))
            if isinstance(completed, list | tuple)
            else (),
            failure={key: get_text(failure, key) for key in ("reason", "message")} if failure else None,
        )

    def build_manifest(self) -> Manifest:
        """Return the state as stored."""
        return {
            "restarts": self.restarts,
            "restartsCountTowardsMax": self.counted,
            "completedIndexes": list(self.completed),
            **({"failure": self.failure} if self.failure else {}),
        }
