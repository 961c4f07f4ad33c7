"""What Flyte is to believe of a job that was seen: `judge`, with the rules of this platform."""

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
    """Judges entries of a cache; asks nobody."""

    settings: Settings
    now: Callable[[], datetime]

    def phase(self, entry: Entry) -> TaskPhase:
        """The phase at this moment."""
        return pipeline.judge(entry.observed(), self._rules(entry.origin), self.now())

    def lasting(self, entry: Entry) -> tuple[TaskPhase, datetime]:
        """The phase at this moment, and until when it is the same unless something changes."""
        return pipeline.lasting(entry.observed(), self._rules(entry.origin), self.now())

    def turn(self, entry: Entry) -> Turn | None:
        """What is to be said on the job at this moment."""
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
