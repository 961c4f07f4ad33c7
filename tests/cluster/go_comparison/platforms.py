"""The two platforms: each has a propeller, one with Flyte's own plugin and one with our server."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from flytekit.core.workflow import WorkflowBase
from rig.api import Manifest, jobs, pods
from rig.control_plane import ControlPlane
from rig.process import wait_until
from rig.propeller import TERMINATED, RealExecution, RealPropeller
from rig.recorder import RecordedPhase

_PATIENCE: Final = 180
# flytekit can translate workflows in only one thread at a time.
_TRANSLATING: Final = Lock()


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two platforms."""

    name: str
    plane: ControlPlane
    propeller: RealPropeller

    def start(self, workflow: WorkflowBase, annotations: Mapping[str, str], **inputs: Any) -> "Run":
        """Start an execution of this workflow."""
        with _TRANSLATING:
            return Run(side=self, execution=self.propeller.start(workflow, annotations=annotations, **inputs))


@dataclass(kw_only=True)
class Run:
    """An execution on one side."""

    side: Side
    execution: RealExecution
    until_abort: Sequence[RecordedPhase] | None = None
    """The events until we aborted it; None if it was not aborted."""
    aborted: float = 0
    """The time of the abort, by `time.monotonic`."""
    gone_after: float | None = None
    """The seconds from the abort until all its objects were deleted."""

    @property
    def has_ended(self) -> bool:
        """True if propeller has finished the execution."""
        found = self.side.propeller.find_execution(self.execution)
        return found is None or TERMINATED in found["metadata"].get("labels", {})

    def shown(self) -> Sequence[RecordedPhase]:
        """Return the task events until now."""
        return self.side.propeller.recorder.tasks(self.execution.name)

    def phases(self) -> Sequence[str]:
        """Return the phases of these events."""
        return [each.phase for each in self.shown()]

    def pods(self) -> Sequence[Manifest]:
        """Return its pods."""
        return self._list_owned(pods(self.side.propeller.namespace))

    def jobs(self) -> Sequence[Manifest]:
        """Return its PyTorchJobs."""
        return self._list_owned(jobs(self.side.propeller.namespace))

    def abort(self) -> None:
        """Abort the execution, as a user does."""
        self.until_abort = self.shown()
        self.aborted = time.monotonic()
        self.side.propeller.abort(self.execution)

    def is_gone(self) -> bool:
        """True if it was not aborted, or if its objects have been deleted since the abort."""
        if self.until_abort is not None and self.gone_after is None and not self.jobs() and not self.pods():
            self.gone_after = time.monotonic() - self.aborted
        return self.until_abort is None or self.gone_after is not None

    def wait_until(self, so: Callable[[], bool]) -> None:
        """Wait for a condition."""
        wait_until(so, _PATIENCE, lambda: f"{self.side.name}: {self.shown()}")

    def _list_owned(self, path: str) -> Sequence[Manifest]:
        return self.side.plane.admin.items(path, labelSelector=f"execution-id={self.execution.name}")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The same execution on both sides."""

    theirs: Run
    ours: Run

    def __iter__(self) -> Iterator[Run]:
        return iter((self.theirs, self.ours))


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The two platforms."""

    theirs: Side
    ours: Side

    def start(self, workflow: WorkflowBase, annotations: Mapping[str, str], **inputs: Any) -> Pair:
        """Start the same execution on both."""
        theirs = self.theirs.start(workflow, annotations, **inputs)
        return Pair(theirs=theirs, ours=self.ours.start(workflow, annotations, **inputs))
