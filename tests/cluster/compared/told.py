"""What a user was told of an execution, and what it took: read when all is over.

Lives here: records. Does not: whether it was good; the tests say that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rig.audit import Call
from rig.recorder import Shown

from compared.sides import Run

_LAST: Final = {"SUCCEEDED", "FAILED"}


@dataclass(frozen=True, kw_only=True)
class Told:
    """Of one execution."""

    shown: Sequence[Shown]
    """Until its end, or until we aborted it."""
    created: float
    gone_after: float | None
    """Seconds until nothing was left, if we aborted it."""
    calls: Sequence[Call]
    """That name it, over its whole life."""
    running: int
    """Pods that run on after the end."""

    @property
    def phases(self) -> Sequence[str]:
        """As they were shown, each with its attempt."""
        return [f"{each.attempt} {each.phase}" for each in self.shown]

    @property
    def attempts(self) -> int:
        return len({each.attempt for each in self.shown})

    @property
    def message(self) -> str:
        """What was said of the last thing about which anything was."""
        said = [each.message or each.reason for each in self.shown]
        return next((each for each in reversed(said) if each), "")

    @property
    def took(self) -> float | None:
        """Seconds from the workflow's creation until its last phase was shown; None if it had none."""
        last = self.shown[-1]
        return last.at - self.created if last.phase in _LAST else None

    def asked(self, user: str) -> int:
        """How often this user asked the API server for something of it."""
        return sum(each.user == user for each in self.calls)

    def read(self, user: str) -> int:
        """How often it asked what there was."""
        return sum(each.user == user and each.is_read for each in self.calls)


def told(run: Run, calls: Sequence[Call]) -> Told:
    """What there is to say of it now."""
    return Told(
        shown=run.shown() if run.until_abort is None else run.until_abort,
        created=run.execution.created,
        gone_after=run.gone_after,
        calls=[each for each in calls if run.execution.name in each.name],
        running=sum(pod["status"]["phase"] == "Running" for pod in run.pods()),
    )
