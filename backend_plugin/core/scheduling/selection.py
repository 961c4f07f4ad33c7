"""Selection of a gang scheduler for a job, from the settings, the author's options and the capabilities."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from difflib import get_close_matches
from typing import Final

import msgspec

from backend_plugin.core import job as vocabulary
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import Attempt, TrainingJob
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.scheduling.adapter import QUEUE, TIMEOUT, Detection, SchedulerAdapter
from backend_plugin.core.scheduling.adapter_composition import find_admission_adapter
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.gang_settings import (
    AUTO,
    IN_TREE_WHY,
    LOCAL_QUEUE,
    NONE,
    PATH,
    GangSettings,
)
from backend_plugin.core.scheduling.operator_gangs import OPERATOR
from backend_plugin.core.scheduling.registry import ADAPTERS, IN_TREE

_TASK: Final = "custom.kfpytorch.gang"
_DEFAULT_QUEUE: Final = "default"
"""Kueue puts a job without a queue name into the LocalQueue of this name, if the namespace has it."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The gang scheduler of a job, or none."""

    gang: GangSettings
    """The settings for the job: a scheduler of the table or `NONE`, never `AUTO`."""
    reasons: Sequence[str] = ()
    """The reasons as sentences; the first names the selected scheduler."""
    problems: Sequence[Problem] = ()
    """The reasons why the job cannot have a gang scheduler."""


class _EffectiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that apply to a job, with their path in the file and the reason why they apply."""

    gang: GangSettings
    path: str
    why: str


def select_scheduler(platform: GangSettings, job: TrainingJob, cluster: Capabilities) -> Selection:
    """Return the gang scheduler for a job."""
    options = job.gang or vocabulary.GangOptions()
    effective = _get_effective_settings(platform, job.run)
    offered = _list_allowed_schedulers(effective.gang, platform, cluster)
    if options.scheduler is not None and options.scheduler not in offered:
        return Selection(
            gang=GangSettings(), problems=(_not_allowed_problem(options.scheduler, offered, cluster),)
        )
    if options.scheduler == NONE:
        return Selection(gang=GangSettings(), reasons=("No gang: the task sets Gang(scheduler='none').",))
    if options.scheduler not in (None, AUTO, effective.gang.scheduler):
        if options.scheduler not in platform.allowed_schedulers:
            return _select_detected(effective, options, cluster)
        path = f"{PATH}.allowed-schedulers.{options.scheduler}"
        why = f"the task sets Gang(scheduler='{options.scheduler}'), which {PATH}.allowed-schedulers allows"
        effective = _EffectiveSettings(
            gang=platform.allowed_schedulers[options.scheduler], path=path, why=why
        )
    return (
        _select_detected(effective, options, cluster)
        if effective.gang.scheduler == AUTO
        else _select_configured(effective, options, cluster)
    )


def _get_effective_settings(platform: GangSettings, run: Attempt) -> _EffectiveSettings:
    """Return the settings for the project and domain, the namespace or the platform; the first wins."""
    project = f"{run.project}/{run.domain}"
    for name, key, parts in (
        ("by-project", project, platform.by_project),
        ("by-namespace", run.namespace, platform.by_namespace),
    ):
        if key in parts:
            path = f"{PATH}.{name}.{key}"
            return _EffectiveSettings(gang=parts[key], path=path, why=f"set by {path}")
    return _EffectiveSettings(gang=platform, path=PATH, why=f"set by {PATH}")


def _list_allowed_schedulers(
    settings: GangSettings, platform: GangSettings, cluster: Capabilities
) -> tuple[str, ...]:
    """Return the schedulers that an author may name.

    If the operator creates a pod group for every job, the author cannot choose `NONE`.
    """
    is_auto = settings.scheduler == AUTO
    is_forced = settings.pod_groups_by == OPERATOR or (is_auto and cluster.operator_scheduler)
    sighted = [
        name
        for name, adapters in ADAPTERS.items()
        if is_auto and any(each.sighting for each in adapters.values())
    ]
    none = () if is_forced else (NONE,)
    admits = find_admission_adapter(ADAPTERS) if is_auto else None
    alone = () if admits is None else (admits[0],)
    return tuple(dict.fromkeys([settings.scheduler, *none, *platform.allowed_schedulers, *sighted, *alone]))


def _not_allowed_problem(scheduler: str, offered: Sequence[str], cluster: Capabilities) -> Problem:
    message = "is not a gang scheduler that a job can use on this platform"
    if scheduler == IN_TREE:
        message = IN_TREE_WHY + _format_in_tree_support(cluster)
    return build_problem(
        f"{_TASK}.scheduler", scheduler, message, f"leave it out, or write {' or '.join(offered)}"
    )


def _format_in_tree_support(cluster: Capabilities) -> str:
    if cluster.kubernetes is None:
        return ""
    versions = [each for each in (cluster.apis or {}).get("scheduling.k8s.io", ()) if each != "v1"]
    verb = {True: "keeps", False: "drops", None: "may keep"}[cluster.keeps_scheduling_group]
    served = f"serves scheduling.k8s.io/{', '.join(versions)}" if versions else "serves none of its kinds"
    return f"; this cluster is Kubernetes {cluster.kubernetes}, {served}, and {verb} the field of a pod"


# ---- a scheduler that the settings name


def _select_configured(
    effective: _EffectiveSettings, options: vocabulary.GangOptions, cluster: Capabilities
) -> Selection:
    gang, adapter = effective.gang, effective.gang.adapter
    if adapter is None:
        return Selection(gang=gang, reasons=(f"No gang: {effective.why}.",))
    reasons = [f"{_format_selection(gang)}: {effective.why}."]
    problems = [
        *_check_cluster(gang, adapter, cluster, effective.path),
        *_check_queues(gang, options, cluster, effective.path),
    ]
    return Selection(
        gang=gang, reasons=(*reasons, *_iter_admin_warnings(gang, cluster)), problems=tuple(problems)
    )


def _check_cluster(
    gang: GangSettings, adapter: SchedulerAdapter, cluster: Capabilities, path: str
) -> Iterator[Problem]:
    """Yield a problem if the cluster cannot be used as the settings require."""
    remedy = f"write {AUTO} to detect the scheduler, or correct the cluster"
    if denied := adapter.denied(cluster):
        key, value = (
            ("pod-groups-by", gang.pod_groups_by) if gang.pod_groups_by else ("scheduler", gang.scheduler)
        )
        yield build_problem(f"{path}.{key}", value, f"cannot be used on this cluster: {denied}", remedy)
    admits = find_admission_adapter(ADAPTERS)
    if gang.local_queue and admits is not None and (denied := admits[1].denied(cluster)):
        message = f"cannot be used on this cluster: {denied}"
        yield build_problem(
            f"{path}.{LOCAL_QUEUE}", gang.local_queue, message, "leave it out, or correct the cluster"
        )


def _check_queues(
    gang: GangSettings, options: vocabulary.GangOptions, cluster: Capabilities, path: str
) -> Iterator[Problem]:
    for key, scheduler, default, requested in _iter_queues(gang, options):
        known = cluster.queues.get(scheduler)
        queue = requested or default
        if queue and known is not None and queue not in known:
            yield _unknown_queue_problem(
                f"{_TASK}.queue" if requested else f"{path}.{key}", queue, scheduler, known
            )


def _unknown_queue_problem(field: str, queue: str, whose: str, known: Sequence[str]) -> Problem:
    near = get_close_matches(queue, known, n=3) or sorted(known)[:3]
    remedy = f"write {' or '.join(near)}" if near else f"create a queue of {whose} for this namespace"
    return build_problem(field, queue, f"is not a queue of {whose} for this namespace", remedy)


def _iter_queues(gang: GangSettings, options: vocabulary.GangOptions) -> Iterator[tuple[str, str, str, str]]:
    """Yield the key of the setting, the scheduler, the platform's queue and the author's queue."""
    admits = find_admission_adapter(ADAPTERS)
    is_both = bool(gang.local_queue) and admits is not None
    if admits is not None and is_both:
        yield LOCAL_QUEUE, admits[0], gang.local_queue, options.queue or ""
    yield QUEUE, gang.scheduler, gang.queue, "" if is_both else options.queue or ""


# ---- a scheduler that is detected


def _select_detected(
    effective: _EffectiveSettings, options: vocabulary.GangOptions, cluster: Capabilities
) -> Selection:
    """Return the scheduler of the matching rule with the lowest rank, among those that the author allows."""
    requested = None if options.scheduler == AUTO else options.scheduler
    # With queue admission, the author's queue is the admission queue.
    queue = (
        effective.gang.queue
        if _select_admission_queue(effective.gang, options, cluster)[0]
        else options.queue or effective.gang.queue
    )
    passed, ranked = [], []
    for name, pod_groups_by, adapter in _iter_adapters(requested):
        sighting = adapter.sighting
        detection = sighting.sees(cluster, queue) if sighting else None
        if sighting is None or detection is None:
            continue
        if denied := adapter.denied(cluster):
            passed.append(f"Not {_format_scheduler(name, pod_groups_by)}: {denied}.")
            continue
        ranked.append(
            (
                sighting.rank,
                _build_detected_settings(effective.gang, (name, pod_groups_by, adapter), detection),
                detection,
            )
        )
    if not ranked:
        return _select_without_detection(effective, options, cluster)
    _, gang, detection = min(ranked, key=lambda each: each[0])
    others = [
        f"{_format_scheduler(each.scheduler, each.pod_groups_by)} is available, too."
        for _, each, _ in ranked
        if each is not gang
    ]
    return _with_admission(
        gang, effective, options, cluster, [f"{_format_selection(gang)}: {detection.why}.", *others, *passed]
    )


def _iter_adapters(requested: str | None) -> Iterator[tuple[str, str, SchedulerAdapter]]:
    for name, adapters in ADAPTERS.items():
        for pod_groups_by, adapter in adapters.items():
            if requested in (None, name):
                yield name, pod_groups_by, adapter


def _build_detected_settings(
    settings: GangSettings, which: tuple[str, str, SchedulerAdapter], detection: Detection
) -> GangSettings:
    """Return the settings for the detected scheduler, with the options that it supports."""
    name, pod_groups_by, adapter = which
    return GangSettings(
        scheduler=name,
        pod_groups_by=pod_groups_by,
        scheduler_name=detection.scheduler_name,
        queue=settings.queue if QUEUE in adapter.understands else "",
        schedule_timeout=settings.schedule_timeout if TIMEOUT in adapter.understands else timedelta(0),
    )


def _select_without_detection(
    effective: _EffectiveSettings, options: vocabulary.GangOptions, cluster: Capabilities
) -> Selection:
    """Return the selection if no scheduler of pods is detected; a queue may still admit the job."""
    admits = find_admission_adapter(ADAPTERS)
    # The admitting scheduler gets the platform's queue if there is no other scheduler.
    queue, why = _select_admission_queue(effective.gang, options, cluster, effective.gang.queue)
    if admits is not None and queue and options.scheduler in (None, AUTO, admits[0]):
        gang = GangSettings(scheduler=admits[0], queue=queue)
        reasons = (f"{_format_selection(gang)}: {why}.", "No gang scheduler for pods is found.")
        problems = tuple(_check_queues(gang, options, cluster, effective.path))
        return Selection(gang=gang, reasons=reasons, problems=problems)
    unusable = [*_check_requested_queue(effective, options, cluster)]
    if options.scheduler not in (None, AUTO):
        unusable = unusable or [*_check_requested_scheduler(options.scheduler, why, cluster)]
        return Selection(gang=GangSettings(), problems=tuple(unusable))
    nobody = (
        "No gang, and jobs of several replicas may block each other: no scheduler "
        f"found{_format_unknown_facts(cluster)}."
    )
    reasons = (nobody, *([f"{why}."] if why else ()))
    return Selection(gang=GangSettings(), reasons=reasons, problems=tuple(unusable))


def _check_requested_scheduler(scheduler: str, why: str, cluster: Capabilities) -> Iterator[Problem]:
    """Yield the reason why a task cannot have the scheduler that it names."""
    known = cluster.queues.get(scheduler)
    if known and not why:
        yield build_problem(
            f"{_TASK}.queue", "", f"is required by {scheduler}", f"write {' or '.join(known[:3])}"
        )
    else:
        missing = f"cannot be used on this cluster: {why}" if why else "is not found on this cluster"
        yield build_problem(
            f"{_TASK}.scheduler", scheduler, f"{missing}{_format_unknown_facts(cluster)}", "leave it out"
        )


def _check_requested_queue(
    effective: _EffectiveSettings, options: vocabulary.GangOptions, cluster: Capabilities
) -> Iterator[Problem]:
    """Yield a problem if the job names a queue and the known queues do not include it."""
    queue = options.queue or effective.gang.queue
    candidates = {
        name: queues for name, queues in cluster.queues.items() if options.scheduler in (None, AUTO, name)
    }
    known = sorted({each for queues in candidates.values() for each in queues})
    unseen = [name for name in cluster.unknown if name in ADAPTERS]
    if queue and candidates and queue not in known and not unseen:
        whose = " or ".join(sorted(candidates))
        field = f"{_TASK}.queue" if options.queue else f"{effective.path}.{QUEUE}"
        yield _unknown_queue_problem(field, queue, whose, known)


def _with_admission(
    gang: GangSettings,
    effective: _EffectiveSettings,
    options: vocabulary.GangOptions,
    cluster: Capabilities,
    reasons: list[str],
) -> Selection:
    """Return the selection with queue admission, if a queue applies to the job."""
    adapter = ADAPTERS[gang.scheduler][gang.pod_groups_by]
    queue, why = _select_admission_queue(effective.gang, options, cluster)
    if queue and adapter.not_after_admission:
        reasons.append(
            f"Not after queue {queue}, because the gang is for {gang.scheduler}: "
            f"{adapter.not_after_admission}."
        )
    elif queue:
        gang = replace(gang, local_queue=queue)
        reasons.append(f"The job waits in queue {queue} first: {why}.")
    elif why:
        reasons.append(f"{why}.")
    problems = _check_queues(gang, options, cluster, effective.path)
    return Selection(
        gang=gang, reasons=(*reasons, *_iter_admin_warnings(gang, cluster)), problems=tuple(problems)
    )


def _select_admission_queue(
    settings: GangSettings, options: vocabulary.GangOptions, cluster: Capabilities, alone: str = ""
) -> tuple[str, str]:
    """Return the admission queue and the reason for it, or no queue and the reason against it.

    `alone` is the platform's queue, if no other scheduler can use it.
    """
    admits = find_admission_adapter(ADAPTERS)
    name = admits[0] if admits else ""
    known = cluster.queues.get(name, ())
    choices = (
        (settings.local_queue, bool(settings.local_queue), f"set by {PATH}.{LOCAL_QUEUE}"),
        (
            options.queue or "",
            options.queue in known,
            f"it is a queue of {name} in this namespace, and the task names it",
        ),
        (alone, alone in known, f"it is a queue of {name} in this namespace, and {PATH} names it"),
        (_DEFAULT_QUEUE, _DEFAULT_QUEUE in known, f"{name} has a queue of this name in the namespace"),
    )
    queue, _, why = next((each for each in choices if each[1]), ("", False, ""))
    others = [each for each, queues in cluster.queues.items() if each != name and options.queue in queues]
    if queue == _DEFAULT_QUEUE and options.queue != queue and not settings.local_queue and others:
        return "", f"Not after queue {queue}: the task's {options.queue} is one of {others[0]}"
    if queue and admits and (denied := admits[1].denied(cluster)):
        return "", f"Not after queue {queue}: {denied}"
    return queue, why


def _format_unknown_facts(cluster: Capabilities) -> str:
    """Return a clause with the unknown facts that might have shown another scheduler."""
    lines = [f"; {name.replace('_', '-')} is not known: {why}" for name, why in cluster.unknown.items()]
    return "".join(lines) or (
        "; the capabilities of the cluster are not known" if cluster.apis is None else ""
    )


def _iter_admin_warnings(gang: GangSettings, cluster: Capabilities) -> Iterator[str]:
    """Yield the warnings for an admin about this scheduler on this cluster."""
    if cluster.operator_scheduler and gang.pod_groups_by != OPERATOR:
        yield (
            f"The training-operator runs with --gang-scheduler-name={cluster.operator_scheduler}, and "
            "creates a group for every job, which these gangs do not use."
        )
    if cluster.schedulers is not None and (name := gang.scheduler_name or _get_scheduler_name(gang)) not in (
        "",
        *cluster.schedulers,
    ):
        yield f"No pod was bound by {name} recently."


def _get_scheduler_name(gang: GangSettings) -> str:
    return ADAPTERS[gang.scheduler][gang.pod_groups_by].scheduler_name


def _format_selection(gang: GangSettings) -> str:
    """Return the start of a sentence that names the selected scheduler."""
    return f"Gangs are for {_format_scheduler(gang.scheduler, gang.pod_groups_by)}"


def _format_scheduler(name: str, pod_groups_by: str) -> str:
    return f"{name} ({pod_groups_by})" if pod_groups_by else name
