"""The main functions: `plan` derives manifests from a task, `judge` the Flyte phase from a job's state."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from flyteidl.core.tasks_pb2 import TaskTemplate
from msgspec import structs

from backend_plugin.core.decoding import custom, dialect_selection
from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.errors import collect_problems
from backend_plugin.core.job import Attempt, TrainingJob
from backend_plugin.core.judging import (
    job_events,
    log_links,
    messages,
    root_cause,
    status,
    terminations,
    timeouts,
    verdict_rules,
)
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.job_events import JobEventDecision
from backend_plugin.core.judging.job_status import JobState, JobStatus
from backend_plugin.core.judging.verdict import Verdict
from backend_plugin.core.judging.verdict_annotation import find_end_time, find_recorded_verdict
from backend_plugin.core.manifest import pod
from backend_plugin.core.manifest.object_metadata import build_job_metadata, with_identity
from backend_plugin.core.manifest.pod_draft import PodRequest
from backend_plugin.core.observed import Job, Observed
from backend_plugin.core.plan import JobDraft, Plan
from backend_plugin.core.scheduling import foreign_fields, gang_options, selection
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities
from backend_plugin.core.scheduling.companions import read_companions
from backend_plugin.core.scheduling.detection import Selection
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Manifest

# The times after which a verdict is computed again to see if it is still the same, the longest first.
_HORIZONS: Final = (timedelta(minutes=10), timedelta(seconds=20))


def plan(
    template: TaskTemplate,
    run: Attempt,
    settings: Settings,
    pod_templates: Sequence[Manifest] = (),
    capabilities: Capabilities = NOTHING,
) -> Plan:
    """Return all manifests that an attempt needs, without any request to the cluster.

    `pod_templates` are the PodTemplates of the cluster that the task may name. `capabilities` is what the
    cluster supports. Raises `InvalidTask` with all problems of the task.
    """
    with collect_problems() as problems:
        job = custom.decode(template, run, problems)
        kind = dialect_selection.select_dialect(settings.kfpytorch, job, capabilities)
        dialect, capabilities = kind.dialect, capabilities.for_dialect(kind.dialect)
        chosen = select_gang(settings, job, dialect, capabilities)
        problems.extend([*kind.problems, *chosen.problems])
        problems.extend(gang_options.check_gang_options(job, chosen.gang, dialect))
        problems.extend(gang_options.check_topology(job, chosen.gang))
        request = PodRequest(
            template=template, run=run, settings=settings, dialect=dialect, pod_templates=pod_templates
        )
        pods, warnings = pod.build_pod_templates(request, job.groups)
    job, folded = dialect.fold(job, pods)
    draft = _build_draft(request, job, folded)
    full_draft = gang_options.add_gang(job, draft, chosen.gang, capabilities)
    warnings += foreign_fields.find_warnings(job, draft, chosen.gang, capabilities)
    manifest = dialect.build(job, full_draft)
    return Plan(
        dialect=dialect.name,
        job=manifest,
        prerequisites=dialect.build_prerequisites(job, full_draft),
        companions=() if full_draft is draft else read_companions(dialect.read(manifest)),
        warnings=tuple(map(str, warnings)),
        reasons=(*kind.reasons, *chosen.reasons),
    )


def _build_draft(request: PodRequest, job: TrainingJob, pods: Sequence[Manifest]) -> JobDraft:
    settings, run, dialect = request.settings, request.run, request.dialect
    return JobDraft(
        dialect=dialect.name,
        metadata=build_job_metadata(
            request.template, run, job.deadlines, pods[0], longest_name=dialect.get_longest_name(job)
        ),
        pods={group.role: with_identity(each, run) for group, each in zip(job.groups, pods, strict=True)},
        ttl_seconds=_get_ttl_seconds(job, settings),
        max_disruptions=settings.kfpytorch.max_disruptions,
        initializer_images=settings.kfpytorch.initializer_images,
        initializer_requests={"cpu": settings.default_cpus.text, "memory": settings.default_memory.text},
    )


def select_gang(
    settings: Settings, job: TrainingJob, dialect: Dialect, capabilities: Capabilities
) -> Selection:
    """Return the gang scheduler, if any, for a job of the kind `dialect`, with reasons for or against it."""
    gangs = settings.kfpytorch.gang
    gangs = gangs if dialect.creates_pod_groups else gangs.without_operator_groups()
    return selection.select_scheduler(gangs, job, capabilities.for_dialect(dialect))


def _get_ttl_seconds(job: TrainingJob, settings: Settings) -> int | None:
    """Return how many seconds a finished job is kept: the task's value, else the platform's, else None."""
    seconds = job.run_policy.ttl_seconds_after_finished
    return int(settings.kfpytorch.ttl_after_finished.total_seconds()) or None if seconds is None else seconds


def judge(observed: Observed, rules: JudgingContext, now: datetime) -> Verdict:
    """Return the Flyte phase, reason, message and log links for the observed state of a job."""
    return _judge_status(status.compute_status(observed, rules.judging.exit_codes), rules, now)


def _judge_status(observed_status: JobStatus, rules: JudgingContext, now: datetime) -> Verdict:
    verdict = verdict_rules.judge_status(observed_status, rules, now)
    job = observed_status.job
    finish = now if job is None else find_end_time(job) or now
    links = log_links.build_links(job, observed_status.pods, rules, finish)
    warnings = verdict_rules.list_reportable_warnings(observed_status, rules.judging, now)
    return structs.replace(
        verdict, logs=links, info=messages.build_custom_info(observed_status, verdict.cause, warnings)
    )


def has_unobserved_termination(observed: Observed) -> bool:
    """True if the job failed and the watch may not have delivered the termination that caused it.

    This is the case if no termination of a container is known. It is also the case if a pod appears to run,
    and the known termination that is the most probable cause is only the consequence of another one.
    """
    job_status = status.compute_status(observed, {})
    if job_status.state is not JobState.FAILED or find_recorded_verdict(observed.job) is not None:
        return False
    termination = job_status.root_cause
    if termination is None:
        return True
    return not root_cause.is_possible_cause(termination) and any(
        map(terminations.is_pod_alive, job_status.pods)
    )


def decide_job_event(observed: Observed, rules: JudgingContext, now: datetime) -> JobEventDecision | None:
    """Return whether a job in the Flyte phase RUNNING waits for resources or runs, and the event to write.

    Return None in another phase, and if neither is the case, for example while a replica restarts.
    """
    observed_status = status.compute_status(observed, rules.judging.exit_codes)
    verdict = verdict_rules.judge_status(observed_status, rules, now)
    return job_events.decide_event(observed_status, observed.events, verdict, rules.judging, now)


def build_start_patch(
    job: Job | None, rules: JudgingContext, observe: Callable[[], Observed]
) -> Manifest | None:
    """Return the merge patch that records when a job with a deadline started; None if none is needed.

    `observe` returns the observed state of the job. It is called only if a patch may be needed.
    """
    if not timeouts.needs_start(job, rules):
        return None
    return timeouts.build_start_patch(status.compute_status(observe(), rules.judging.exit_codes))


def judge_with_expiry(observed: Observed, rules: JudgingContext, now: datetime) -> tuple[Verdict, datetime]:
    """Return the verdict on a job, which contains its Flyte phase, and a time until which it stays the same.

    The time is valid while the observed state stays the same. The verdict is computed again for one or two
    later times (`_HORIZONS`). The result is the last time with the same verdict, or `now` if there is none.
    In between, the verdict is also the same, because an exceeded limit stays exceeded.
    """
    observed_status = status.compute_status(observed, rules.judging.exit_codes)
    verdict = _judge_status(observed_status, rules, now)
    # The queue position of a job changes without a change of its own objects.
    queued = any(group.ahead is not None for group in observed.pod_groups)
    for ahead in _HORIZONS[1:] if queued else _HORIZONS:
        if _judge_status(observed_status, rules, now + ahead) == verdict:
            return verdict, now + ahead
    return verdict, now
