"""The two main functions, `plan` and `judge`, which compose all stages; read this module first."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from flyteidl.core.tasks_pb2 import TaskTemplate
from msgspec import structs

from backend_plugin.core import custom, judgement, log_links, scheduling, status, turns, wording
from backend_plugin.core.errors import gathered
from backend_plugin.core.job import Plan, Run
from backend_plugin.core.log_links import About
from backend_plugin.core.manifest import pod, pytorchjob
from backend_plugin.core.manifest.metadata import job_metadata
from backend_plugin.core.observed import Observed
from backend_plugin.core.rules import Rules
from backend_plugin.core.scheduling import missing_gang, selection, wishes
from backend_plugin.core.scheduling.findings import NOTHING, Findings
from backend_plugin.core.settings import Settings
from backend_plugin.core.task_phase import TaskPhase
from backend_plugin.core.turns import Turn
from backend_plugin.core.values import Manifest

_HORIZONS: Final = (timedelta(minutes=10), timedelta(seconds=20))


def plan(
    template: TaskTemplate,
    run: Run,
    settings: Settings,
    pod_templates: Sequence[Manifest] = (),
    found: Findings = NOTHING,
) -> Plan:
    """Return all manifests that an attempt needs, without any request to the cluster.

    Args:
        template: The task.
        run: The attempt.
        settings: The settings of the platform.
        pod_templates: The PodTemplate objects of the cluster that the task may name.
        found: The capabilities of the cluster, used if the platform's settings do not name a scheduler.

    Raises:
        InvalidTask: If the task is invalid; it contains all problems.
    """
    request = pod.PodRequest(template=template, run=run, settings=settings, pod_templates=pod_templates)
    with gathered() as problems:
        job = custom.decode(template, run, problems)
        chosen = selection.select(settings.kfpytorch.gang, job, found)
        problems.extend([*chosen.problems, *wishes.problems(job, chosen.gang)])
        pods = pod.pod_templates(request, job.groups)
    manifest = pytorchjob.build(job, settings, job_metadata(template, run, job.deadlines, pods[0]), pods)
    manifests = scheduling.manifests(job, manifest, chosen.gang, found)
    warnings = [
        *pod.find_warnings(request, job.groups),
        *missing_gang.find_warnings(job, manifest, chosen.gang, found),
    ]
    return Plan(manifests=tuple(manifests), warnings=tuple(map(str, warnings)), reasons=tuple(chosen.reasons))


def judge(observed: Observed, rules: Rules, now: datetime) -> TaskPhase:
    """Return the verdict, with phase, message and log links, for the observed state of a job."""
    seen = status.read(observed, rules.judging.exit_codes)
    verdict = judgement.from_status(seen, rules.judging, rules.deadlines, now)
    about = About(now=now, run=rules.run, task_config=rules.task_config)
    links = log_links.links(seen.job, seen.pods, rules.logs, about)
    aloud = judgement.notes(seen, rules.judging, now)
    return structs.replace(verdict, logs=links, info=wording.info(seen, verdict.cause, aloud))


def turn(observed: Observed, rules: Rules, now: datetime) -> Turn | None:
    """Return the change of a job that has run: it waits for resources again, or runs again."""
    seen = status.read(observed, rules.judging.exit_codes)
    verdict = judgement.from_status(seen, rules.judging, rules.deadlines, now)
    return turns.of(seen, observed.events, verdict, rules.judging, now)


def lasting(observed: Observed, rules: Rules, now: datetime) -> tuple[TaskPhase, datetime]:
    """Return the verdict, and the time until which it is valid if the observed state does not change.

    Time alone changes a verdict at most once: an exceeded limit stays exceeded. So a verdict that is the same
    now and later is the same in between.
    """
    verdict = judge(observed, rules, now)
    # The queue position of a job changes without a change of its own objects.
    queued = any(group.ahead is not None for group in observed.pod_groups)
    for ahead in _HORIZONS[1:] if queued else _HORIZONS:
        if judge(observed, rules, now + ahead) == verdict:
            return verdict, now + ahead
    return verdict, now
