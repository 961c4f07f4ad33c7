"""By what a job is judged: the platform's settings, and what its author asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backend_plugin.core.job import Deadlines, Run
from backend_plugin.core.settings.judging import Judging
from backend_plugin.core.settings.logs import Logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Everything that judging takes beside what was seen, and when."""

    judging: Judging = field(default_factory=Judging)
    logs: Logs = field(default_factory=Logs)
    deadlines: Deadlines = field(default_factory=Deadlines)
    run: Run | None = None
    """Fills in log links; None leaves their variables of Flyte's empty."""
    task_config: Mapping[str, str] = field(default_factory=dict)
    """`TaskTemplate.config`, which chooses log links by its ``link_type``."""
