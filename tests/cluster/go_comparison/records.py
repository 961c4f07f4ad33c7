"""Records of an execution: what a user sees, and what it costs. They are read after the execution."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rig.audit import Call
from rig.recorder import RecordedPhase

from go_comparison.platforms import Run

_LAST: Final = {"SUCCEEDED", "FAILED"}


@dataclass(frozen=True, kw_only=True)
class ComparisonRecord:
    """The record of one execution."""

    shown: Sequence[RecordedPhase]
    """The events until the end or the abort."""
    created: float
    gone_after: float | None
    """The seconds from the abort until all objects were deleted; None without an abort."""
    calls: Sequence[Call]
    """All API requests that name the execution."""
    running: int
    """The number of pods that still run after the end."""

    @property
    def phases(self) -> Sequence[str]:
        """The attempt and phase of each event."""
        return [f"{each.attempt} {each.phase}" for each in self.shown]

    @property
    def attempts(self) -> int:
        return len({each.attempt for each in self.shown})

    @property
    def message(self) -> str:
        """The message of the last event that has one."""
        texts = [each.message or each.reason for each in self.shown]
        return next((each for each in reversed(texts) if each), "")

    @property
    def took(self) -> float | None:
        """The seconds from creation to the terminal phase; None without a terminal phase."""
        last = self.shown[-1]
        return last.at - self.created if last.phase in _LAST else None

    def count_requests(self, user: str) -> int:
        """Return the number of requests of this user about the execution."""
        return sum(each.user == user for each in self.calls)

    def read(self, user: str) -> int:
        """Return the number of get and list requests of this user."""
        return sum(each.user == user and each.is_read for each in self.calls)


def read_record(run: Run, calls: Sequence[Call]) -> ComparisonRecord:
    """Return the record of an execution as it is now."""
    return ComparisonRecord(
        shown=run.shown() if run.until_abort is None else run.until_abort,
        created=run.execution.created,
        gone_after=run.gone_after,
        calls=[each for each in calls if run.execution.name in each.name],
        running=sum(pod["status"]["phase"] == "Running" for pod in run.pods()),
    )
