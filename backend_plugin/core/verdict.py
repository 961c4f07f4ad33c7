"""The second sentence of the program: what Flyte should believe of what the cluster says.

Composes the stages of judging; no logic.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import structs

from backend_plugin.core import log_links, status, task_phase, wording
from backend_plugin.core.job import Deadlines, Run
from backend_plugin.core.log_links import About
from backend_plugin.core.observed import Observed
from backend_plugin.core.settings.judging import Judging
from backend_plugin.core.settings.logs import Logs
from backend_plugin.core.task_phase import TaskPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """By what a job is judged: the platform's settings, and what its author asked for."""

    judging: Judging = field(default_factory=Judging)
    logs: Logs = field(default_factory=Logs)
    deadlines: Deadlines = field(default_factory=Deadlines)
    run: Run | None = None
    """Fills in log links; None leaves their variables of Flyte's empty."""
    task_config: Mapping[str, str] = field(default_factory=dict)
    """`TaskTemplate.config`, which chooses log links by its ``link_type``."""


def judge(observed: Observed, rules: Rules, now: datetime) -> TaskPhase:
    """What Flyte should believe after one look at the cluster and at the task's files."""
    seen = status.read(observed, rules.judging.exit_codes)
    verdict = task_phase.from_status(seen, rules.judging, rules.deadlines, now)
    about = About(now=now, run=rules.run, task_config=rules.task_config)
    links = log_links.links(seen.job, seen.pods, rules.logs, about)
    return structs.replace(verdict, logs=links, info=wording.info(seen, verdict.cause))
