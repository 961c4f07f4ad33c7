"""The two: a propeller each, one with Flyte's own plugin, one with our server behind it.

Lives here: starting executions on both, and looking at them. Does not: what happens to their pods.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from flytekit.core.workflow import WorkflowBase
from rig.api import Manifest, jobs, pods
from rig.control_plane import ControlPlane
from rig.process import until
from rig.propeller import TERMINATED, Execution, Propeller
from rig.recorder import Shown

_PATIENCE: Final = 180
# What flytekit makes of a workflow, it makes in one thread.
_TRANSLATING: Final = Lock()


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two."""

    name: str
    plane: ControlPlane
    propeller: Propeller

    def start(self, workflow: WorkflowBase, annotations: Mapping[str, str], **inputs: Any) -> "Run":
        """An execution of this workflow."""
        with _TRANSLATING:
            return Run(side=self, execution=self.propeller.start(workflow, annotations=annotations, **inputs))


@dataclass(kw_only=True)
class Run:
    """One execution on one side."""

    side: Side
    execution: Execution
    until_abort: Sequence[Shown] | None = None
    """What had been shown when we aborted it; None if it ended by itself."""
    aborted: float = 0
    """When, by `time.monotonic`."""
    gone_after: float | None = None
    """How many seconds later nothing was left of it."""

    @property
    def has_ended(self) -> bool:
        """Whether propeller is done with it."""
        found = self.side.propeller.found(self.execution)
        return found is None or TERMINATED in found["metadata"].get("labels", {})

    def shown(self) -> Sequence[Shown]:
        """What was shown so far."""
        return self.side.propeller.recorder.tasks(self.execution.name)

    def phases(self) -> Sequence[str]:
        """The phases of that."""
        return [each.phase for each in self.shown()]

    def pods(self) -> Sequence[Manifest]:
        """Those that it has."""
        return self._of(pods(self.side.propeller.namespace))

    def jobs(self) -> Sequence[Manifest]:
        """Its PyTorchJobs."""
        return self._of(jobs(self.side.propeller.namespace))

    def abort(self) -> None:
        """As a user does."""
        self.until_abort = self.shown()
        self.aborted = time.monotonic()
        self.side.propeller.abort(self.execution)

    def is_gone(self) -> bool:
        """Whether nothing is left of it since it was aborted."""
        if self.until_abort is not None and self.gone_after is None and not self.jobs() and not self.pods():
            self.gone_after = time.monotonic() - self.aborted
        return self.until_abort is None or self.gone_after is not None

    def until(self, so: Callable[[], bool]) -> None:
        """Wait for something of it."""
        until(so, _PATIENCE, lambda: f"{self.side.name}: {self.shown()}")

    def _of(self, path: str) -> Sequence[Manifest]:
        return self.side.plane.admin.items(path, labelSelector=f"execution-id={self.execution.name}")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The same on both sides."""

    theirs: Run
    ours: Run

    def __iter__(self) -> Iterator[Run]:
        return iter((self.theirs, self.ours))


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The two."""

    theirs: Side
    ours: Side

    def start(self, workflow: WorkflowBase, annotations: Mapping[str, str], **inputs: Any) -> Pair:
        """The same execution on each."""
        theirs = self.theirs.start(workflow, annotations, **inputs)
        return Pair(theirs=theirs, ours=self.ours.start(workflow, annotations, **inputs))
