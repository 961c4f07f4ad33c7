"""The core's `judge` with the settings of this platform, applied to cache entries."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from backend_plugin.core import pipeline
from backend_plugin.core.origin import Origin
from backend_plugin.core.rules import Rules
from backend_plugin.core.settings import Settings
from backend_plugin.core.task_phase import TaskPhase
from backend_plugin.core.turns import Turn
from backend_plugin.shell.cache import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Computes the verdict of a cache entry; makes no API calls."""

    settings: Settings
    now: Callable[[], datetime]

    def phase(self, entry: Entry) -> TaskPhase:
        """Return the verdict at this moment."""
        return pipeline.judge(entry.observed(), self._rules(entry.origin), self.now())

    def lasting(self, entry: Entry) -> tuple[TaskPhase, datetime]:
        """Return the verdict, and the time until which it holds if the entry does not change."""
        return pipeline.lasting(entry.observed(), self._rules(entry.origin), self.now())

    def turn(self, entry: Entry) -> Turn | None:
        """Return the decision on a job event that is due at this moment; None if no event is due."""
        return pipeline.turn(entry.observed(), self._rules(entry.origin), self.now())

    def _rules(self, origin: Origin | None) -> Rules:
        settings = self.settings
        if origin is None:
            return Rules(judging=settings.judging, logs=settings.logs)
        return Rules(
            judging=settings.judging,
            logs=settings.logs,
            deadlines=origin.deadlines,
            run=origin.run,
            task_config=origin.task_config,
        )
