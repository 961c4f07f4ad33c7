"""Computes the Flyte phase of cached jobs with `core.pipeline.judge` and the settings of the server."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from backend_plugin.core import pipeline
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.job_events import JobEventDecision
from backend_plugin.core.judging.verdict import Verdict
from backend_plugin.core.observed import Observed
from backend_plugin.core.settings import Settings
from backend_plugin.core.task_annotation import TaskAnnotation
from backend_plugin.core.values import Manifest
from backend_plugin.shell.cached_job import CachedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Computes the verdict (Flyte phase, reason and message) of a cached job; makes no API calls."""

    settings: Settings
    now: Callable[[], datetime]

    def judge_entry(self, entry: CachedJob) -> Verdict:
        """Return the current verdict (Flyte phase, reason and message) on a job."""
        return pipeline.judge(*self._collect_inputs(entry))

    def judge_with_expiry(self, entry: CachedJob) -> tuple[Verdict, datetime]:
        """Return the verdict (phase, reason) on a job, and until when it is valid if nothing changes."""
        return pipeline.judge_with_expiry(*self._collect_inputs(entry))

    def decide_job_event(self, entry: CachedJob) -> JobEventDecision | None:
        """Return whether a job that has run waits for resources or runs again, and the event to write.

        Return None if neither is the case.
        """
        return pipeline.decide_job_event(*self._collect_inputs(entry))

    def build_start_patch(self, entry: CachedJob) -> Manifest | None:
        """Return the patch that stores the start time in a job with a deadline; None if it is not needed."""
        context = self._build_context(entry.origin)
        return pipeline.build_start_patch(entry.job, context, entry.get_observed_state)

    def _collect_inputs(self, entry: CachedJob) -> tuple[Observed, JudgingContext, datetime]:
        return entry.get_observed_state(), self._build_context(entry.origin), self.now()

    def _build_context(self, origin: TaskAnnotation | None) -> JudgingContext:
        settings = self.settings
        if origin is None:
            return JudgingContext(judging=settings.judging, logs=settings.logs)
        return JudgingContext(
            judging=settings.judging,
            logs=settings.logs,
            deadlines=origin.deadlines,
            run=origin.run,
            task_config=origin.task_config,
        )
