"""Plans the job of a burn-in, a short test of the connections between replicas, from the job of a task."""

from dataclasses import replace
from functools import partial
from typing import Final

from msgspec import structs

from backend_plugin.core import task_annotation
from backend_plugin.core.dialects import table
from backend_plugin.core.job import Attempt, Deadlines
from backend_plugin.core.names import CLEAN_POD_POLICY
from backend_plugin.core.plan import Plan
from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_text_map
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.doctor.operators.table import get_operator
from backend_plugin.embedded.objects import merge_patch, with_section

_EXECUTION: Final = "burn-in"
_PREFIX: Final = "kfpytorch-doctor://burn-in/"
"""The output prefix of a burn-in: a placeholder, because there are no task outputs."""
_AFTERWARDS: Final = 60
"""Seconds by which the deadline of the job exceeds the timeout of the burn-in, `BurnInLimits.seconds`."""
_GRACE_SECONDS: Final = 2
"""The grace period of the pods. It is short: PID 1 ignores SIGTERM by default, and no data is lost."""
_AGENT: Final = ("python", "-m", "torch.distributed.run", "--no-python")
_OF_TASK: Final = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "args", "command")
"""Fields of the task's container that a burn-in omits, because they fit only the program of the task."""


def build_attempt(run: Attempt, token: str) -> Attempt:
    """Return the attempt `run` with a burn-in's execution id and output prefix; `token` makes it unique."""
    labels = {**run.labels, "execution-id": _EXECUTION}
    return replace(run, execution=_EXECUTION, output_prefix=f"{_PREFIX}{token}", labels=labels)


def build_trial(planned: Plan, program: str, seconds: int) -> Plan:
    """Return `planned` with the command ``python -c PROGRAM SECONDS`` and the time limits of a burn-in.

    In an elastic job, torch's agent runs this command.
    """
    program_of = ("python", "-c", program, str(seconds))
    command = [*_AGENT, *program_of] if table.read_job(planned.job).elastic else [*program_of]
    dialect = table.get_dialect(planned.dialect)
    change_template = partial(_build_template, dialect.container, command)
    trial = get_operator(dialect).build_trial(planned, change_template, seconds + _AFTERWARDS)
    metadata, annotations = get_mapping(trial.job, "metadata"), dict[str, JsonValue]({CLEAN_POD_POLICY: None})
    known = task_annotation.read(get_text_map(metadata, "annotations"), get_text(metadata, "namespace"))
    if known is not None:
        deadlines = Deadlines(active_seconds=seconds + _AFTERWARDS)
        annotations[task_annotation.ANNOTATION] = task_annotation.encode(known.run, deadlines, {})
    return structs.replace(trial, job=merge_patch(trial.job, {"metadata": {"annotations": annotations}}))


def _build_template(container: str, command: list[str], template: Manifest) -> Manifest:
    containers: list[Manifest] = []
    for each in get_mappings(template, "spec", "containers"):
        kept = {key: value for key, value in each.items() if key not in _OF_TASK}
        is_program = get_text(each, "name") == container
        containers.append({**kept, "command": [*command]} if is_program else each)
    return with_section(template, "spec", containers=containers, terminationGracePeriodSeconds=_GRACE_SECONDS)
