"""The two platforms: each has a propeller, one with Flyte's own plugin and one with our server."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from rig.api import jobs, pods
from rig.audit import Call
from rig.process import wait_until
from rig.propeller import RealExecution, RealPropeller, RecordedPhase, list_owned

_TRANSLATING = Lock()  # flytekit can translate workflows in only one thread at a time.


@dataclass(kw_only=True)
class Run:
    propeller: RealPropeller
    execution: RealExecution
    until_abort: Sequence[RecordedPhase] | None = None
    """The events until we aborted it; None if it was not aborted."""
    aborted: float = 0  # The time of the abort, by `time.monotonic`.
    gone_after: float | None = None  # The seconds from the abort until all its objects were deleted.
    calls: Sequence[Call] = ()  # All API requests that name the execution, after its end.
    running: int = 0  # The number of pods that still run after the end.

    @property
    def has_ended(self):
        return self.propeller.has_ended(self.execution)

    @property
    def shown(self):
        """The task events until now, or until the abort."""
        events = self.propeller.recorder.tasks(self.execution.name)
        return events if self.until_abort is None else self.until_abort

    @property
    def attempts(self):
        return len({each.attempt for each in self.shown})

    @property
    def message(self):
        """The message of the last event that has one."""
        texts = [each.message or each.reason for each in self.shown]
        return next((each for each in reversed(texts) if each), "")

    @property
    def took(self):
        """The seconds from creation to the terminal phase; None without a terminal phase."""
        last = self.shown[-1]
        return last.at - self.execution.created if last.phase in {"SUCCEEDED", "FAILED"} else None

    def phases(self):
        return [each.phase for each in self.shown]

    def count_requests(self, user):
        return sum(each.user == user for each in self.calls)

    def finish(self, calls):
        """Record what is known after the end: the requests, and the pods that still run."""
        self.calls = [each for each in calls if self.execution.name in each.name]
        self.running = sum(pod["status"]["phase"] == "Running" for pod in self.pods())

    def pods(self):
        return list_owned(self.propeller.api, pods(self.propeller.namespace), self.execution)

    def jobs(self):
        return list_owned(self.propeller.api, jobs(self.propeller.namespace), self.execution)

    def abort(self):
        self.until_abort = self.shown
        self.aborted = time.monotonic()
        self.propeller.abort(self.execution)

    def is_gone(self):
        """True if it was not aborted, or if its objects have been deleted since the abort."""
        if self.until_abort is not None and self.gone_after is None and not self.jobs() and not self.pods():
            self.gone_after = time.monotonic() - self.aborted
        return self.until_abort is None or self.gone_after is not None

    def wait_until(self, so):
        wait_until(so, 180, lambda: f"{self.propeller.namespace}: {self.shown}")


class Pair(NamedTuple):
    theirs: Run
    ours: Run


class Sides(NamedTuple):
    theirs: RealPropeller
    ours: RealPropeller

    def start(self, task, annotations, **inputs):
        with _TRANSLATING:
            theirs, ours = (
                Run(propeller=each, execution=each.start(task, annotations=annotations, **inputs))
                for each in self
            )
        return Pair(theirs=theirs, ours=ours)
