"""The settings and the author's options that `judge` needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backend_plugin.core.job import Deadlines, Run
from backend_plugin.core.settings.judging import Judging
from backend_plugin.core.settings.logs import Logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The inputs of `judge`, except the observed state and the time."""

    judging: Judging = field(default_factory=Judging)
    logs: Logs = field(default_factory=Logs)
    deadlines: Deadlines = field(default_factory=Deadlines)
    run: Run | None = None
    """The attempt, for log links; if None, their Flyte variables are empty."""
    task_config: Mapping[str, str] = field(default_factory=dict)
    """`TaskTemplate.config`; its ``link_type`` selects log links."""
