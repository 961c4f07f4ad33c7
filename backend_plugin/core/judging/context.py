"""The settings of the platform and the options of the task that determine the Flyte phase of a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backend_plugin.core.job import Attempt, Deadlines
from backend_plugin.core.settings.judging import JudgingSettings, LogLinkSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingContext:
    """The settings and options with which `pipeline.judge` derives a Flyte phase from observed state."""

    judging: JudgingSettings = field(default_factory=JudgingSettings)
    logs: LogLinkSettings = field(default_factory=LogLinkSettings)
    deadlines: Deadlines = field(default_factory=Deadlines)
    run: Attempt | None = None
    """The Flyte attempt, from which variables of log links are filled; if None, these variables are empty."""
    task_config: Mapping[str, str] = field(default_factory=dict)
    """The field `config` of the task template; its key ``link_type`` selects log links."""
