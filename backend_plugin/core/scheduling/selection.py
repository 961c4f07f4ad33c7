"""Selection of a gang scheduler for a job, from the settings, the author's options and the capabilities."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import get_close_matches
from typing import Final

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The gang scheduler of a job, or none."""

    gang: GangSettings
    """The settings for the job: a scheduler of the table or `NONE`, never `AUTO`."""
    reasons: Sequence[str] = ()
    """The reasons as sentences; the first names the selected scheduler."""
    problems: Sequence[Problem] = ()
    """The reasons why the job cannot have a gang scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _EffectiveSettings:
    """The settings that apply to a job, with their path in the file and the reason why they apply."""

    gang: GangSettings
    path: str
    why: str


def select_scheduler(platform: GangSettings, job: TrainingJob, found: Capabilities) -> Selection:
    """Return the gang scheduler for a job."""
    wish = job.gang or vocabulary.GangOptions()
    said = _get_effective_settings(platform, job.run)
    offered = _list_allowed_schedulers(said.gang, platform, found)
    if wish.scheduler is not None and wish.scheduler not in offered:
        return Selection(
            gang=GangSettings(), problems=(_not_allowed_problem(wish.scheduler, offered, found),)
        )
    if wish.scheduler == NONE:
        return Selection(gang=GangSettings(), reasons=("No gang: the task sets Gang(scheduler='none').",))
    if wish.scheduler not in (None, AUTO, said.gang.scheduler):
        if wish.scheduler not in platform.allowed_schedulers:
            return _select_detected(said, wish, found)
        path = f"{PATH}.allowed-schedulers.{wish.scheduler}"
        why = f"the task sets Gang(scheduler='{wish.scheduler}'), which {PATH}.allowed-schedulers allows"
        said = _EffectiveSettings(gang=platform.allowed_schedulers[wish.scheduler], path=path, why=why)
    return (
        _select_detected(said, wish, found)
        if said.gang.scheduler == AUTO
        else _select_configured(said, wish, found)
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
    whole = replace(platform, by_project={}, by_namespace={}, allowed_schedulers={})
    return _EffectiveSettings(gang=whole, path=PATH, why=f"set by {PATH}")


def _list_allowed_schedulers(
    said: GangSettings, platform: GangSettings, found: Capabilities
) -> tuple[str, ...]:
    """Return the schedulers that an author may name.

    If the operator creates a pod group for every job, the author cannot choose `NONE`.
    """
    is_auto = said.scheduler == AUTO
    is_forced = said.pod_groups_by == OPERATOR or (is_auto and found.operator_scheduler)
    sighted = [
        name
        for name, adapters in ADAPTERS.items()
        if is_auto and any(each.sighting for each in adapters.values())
    ]
    none = () if is_forced else (NONE,)
    admits = find_admission_adapter(ADAPTERS) if is_auto else None
    alone = () if admits is None else (admits[0],)
    return tuple(dict.fromkeys([said.scheduler, *none, *platform.allowed_schedulers, *sighted, *alone]))


def _not_allowed_problem(wanted: str, offered: Sequence[str], found: Capabilities) -> Problem:
    message = "is not a gang scheduler that a job can use on this platform"
    if wanted == IN_TREE:
        message = IN_TREE_WHY + _format_in_tree_support(found)
    return build_problem(
        f"{_TASK}.scheduler", wanted, message, f"leave it out, or write {' or '.join(offered)}"
    )


def _format_in_tree_support(found: Capabilities) -> str:
    if found.kubernetes is None:
        return ""
    versions = [each for each in (found.apis or {}).get("scheduling.k8s.io", ()) if each != "v1"]
    kept = {True: "keeps", False: "drops", None: "may keep"}[found.keeps_scheduling_group]
    served = f"serves scheduling.k8s.io/{', '.join(versions)}" if versions else "serves none of its kinds"
    return f"; this cluster is Kubernetes {found.kubernetes}, {served}, and {kept} the field of a pod"


# ---- a scheduler that the settings name


def _select_configured(
    said: _EffectiveSettings, wish: vocabulary.GangOptions, found: Capabilities
) -> Selection:
    gang, adapter = said.gang, said.gang.adapter
    if adapter is None:
        return Selection(gang=gang, reasons=(f"No gang: {said.why}.",))
    reasons = [f"{_format_selection(gang)}: {said.why}."]
    problems = [
        *_check_cluster(gang, adapter, found, said.path),
        *_check_queues(gang, wish, found, said.path),
    ]
    return Selection(
        gang=gang, reasons=(*reasons, *_iter_admin_warnings(gang, found)), problems=tuple(problems)
    )


def _check_cluster(
    gang: GangSettings, adapter: SchedulerAdapter, found: Capabilities, path: str
) -> Iterator[Problem]:
    """Yield a problem if the cluster cannot be used as the settings require."""
    remedy = f"write {AUTO} to detect the scheduler, or correct the cluster"
    if denied := adapter.denied(found):
        key, value = (
            ("pod-groups-by", gang.pod_groups_by) if gang.pod_groups_by else ("scheduler", gang.scheduler)
        )
        yield build_problem(f"{path}.{key}", value, f"cannot be used on this cluster: {denied}", remedy)
    admits = find_admission_adapter(ADAPTERS)
    if gang.local_queue and admits is not None and (denied := admits[1].denied(found)):
        message = f"cannot be used on this cluster: {denied}"
        yield build_problem(
            f"{path}.{LOCAL_QUEUE}", gang.local_queue, message, "leave it out, or correct the cluster"
        )


def _check_queues(
    gang: GangSettings, wish: vocabulary.GangOptions, found: Capabilities, path: str
) -> Iterator[Problem]:
    for key, scheduler, mine, theirs in _iter_queues(gang, wish):
        known = found.queues.get(scheduler)
        queue = theirs or mine
        if queue and known is not None and queue not in known:
            yield _unknown_queue_problem(
                f"{_TASK}.queue" if theirs else f"{path}.{key}", queue, scheduler, known
            )


def _unknown_queue_problem(field: str, queue: str, whose: str, known: Sequence[str]) -> Problem:
    near = get_close_matches(queue, known, n=3) or sorted(known)[:3]
    remedy = f"write {' or '.join(near)}" if near else f"create a queue of {whose} for this namespace"
    return build_problem(field, queue, f"is not a queue of {whose} for this namespace", remedy)


def _iter_queues(gang: GangSettings, wish: vocabulary.GangOptions) -> Iterator[tuple[str, str, str, str]]:
    """Yield the key of the setting, the scheduler, the platform's queue and the author's queue."""
    admits = find_admission_adapter(ADAPTERS)
    is_both = bool(gang.local_queue) and admits is not None
    if admits is not None and is_both:
        yield LOCAL_QUEUE, admits[0], gang.local_queue, wish.queue or ""
    yield QUEUE, gang.scheduler, gang.queue, "" if is_both else wish.queue or ""


# ---- a scheduler that is detected


def _select_detected(
    said: _EffectiveSettings, wish: vocabulary.GangOptions, found: Capabilities
) -> Selection:
    """Return the scheduler of the matching rule with the lowest rank, among those that the author allows."""
    wanted = None if wish.scheduler == AUTO else wish.scheduler
    # With queue admission, the author's queue is the admission queue.
    queue = (
        said.gang.queue
        if _select_admission_queue(said.gang, wish, found)[0]
        else wish.queue or said.gang.queue
    )
    passed, ranked = [], []
    for name, pod_groups_by, adapter in _iter_adapters(wanted):
        sighting = adapter.sighting
        seen = sighting.sees(found, queue) if sighting else None
        if sighting is None or seen is None:
            continue
        if denied := adapter.denied(found):
            passed.append(f"Not {_format_scheduler(name, pod_groups_by)}: {denied}.")
            continue
        ranked.append(
            (sighting.rank, _build_detected_settings(said.gang, (name, pod_groups_by, adapter), seen), seen)
        )
    if not ranked:
        return _select_without_detection(said, wish, found)
    _, gang, seen = min(ranked, key=lambda each: each[0])
    others = [
        f"{_format_scheduler(each.scheduler, each.pod_groups_by)} is available, too."
        for _, each, _ in ranked
        if each is not gang
    ]
    return _with_admission(
        gang, said, wish, found, [f"{_format_selection(gang)}: {seen.why}.", *others, *passed]
    )


def _iter_adapters(wanted: str | None) -> Iterator[tuple[str, str, SchedulerAdapter]]:
    for name, adapters in ADAPTERS.items():
        for pod_groups_by, adapter in adapters.items():
            if wanted in (None, name):
                yield name, pod_groups_by, adapter


def _build_detected_settings(
    said: GangSettings, which: tuple[str, str, SchedulerAdapter], seen: Detection
) -> GangSettings:
    """Return the settings for the detected scheduler, with the options that it supports."""
    name, pod_groups_by, adapter = which
    return GangSettings(
        scheduler=name,
        pod_groups_by=pod_groups_by,
        scheduler_name=seen.scheduler_name,
        queue=said.queue if QUEUE in adapter.understands else "",
        schedule_timeout=said.schedule_timeout if TIMEOUT in adapter.understands else timedelta(0),
    )


def _select_without_detection(
    said: _EffectiveSettings, wish: vocabulary.GangOptions, found: Capabilities
) -> Selection:
    """Return the selection if no scheduler of pods is detected; a queue may still admit the job."""
    admits = find_admission_adapter(ADAPTERS)
    # The admitting scheduler gets the platform's queue if there is no other scheduler.
    queue, why = _select_admission_queue(said.gang, wish, found, said.gang.queue)
    if admits is not None and queue and wish.scheduler in (None, AUTO, admits[0]):
        gang = GangSettings(scheduler=admits[0], queue=queue)
        reasons = (f"{_format_selection(gang)}: {why}.", "No gang scheduler for pods is found.")
        problems = tuple(_check_queues(gang, wish, found, said.path))
        return Selection(gang=gang, reasons=reasons, problems=problems)
    astray = [*_check_requested_queue(said, wish, found)]
    if wish.scheduler not in (None, AUTO):
        astray = astray or [*_check_requested_scheduler(wish.scheduler, why, found)]
        return Selection(gang=GangSettings(), problems=tuple(astray))
    nobody = (
        "No gang, and jobs of several replicas may block each other: no scheduler "
        f"found{_format_unknown_facts(found)}."
    )
    reasons = (nobody, *([f"{why}."] if why else ()))
    return Selection(gang=GangSettings(), reasons=reasons, problems=tuple(astray))


def _check_requested_scheduler(wanted: str, why: str, found: Capabilities) -> Iterator[Problem]:
    """Yield the reason why a task cannot have the scheduler that it names."""
    known = found.queues.get(wanted)
    if known and not why:
        yield build_problem(
            f"{_TASK}.queue", "", f"is required by {wanted}", f"write {' or '.join(known[:3])}"
        )
    else:
        missing = f"cannot be used on this cluster: {why}" if why else "is not found on this cluster"
        yield build_problem(
            f"{_TASK}.scheduler", wanted, f"{missing}{_format_unknown_facts(found)}", "leave it out"
        )


def _check_requested_queue(
    said: _EffectiveSettings, wish: vocabulary.GangOptions, found: Capabilities
) -> Iterator[Problem]:
    """Yield a problem if the job names a queue and the known queues do not include it."""
    queue = wish.queue or said.gang.queue
    theirs = {name: queues for name, queues in found.queues.items() if wish.scheduler in (None, AUTO, name)}
    known = sorted({each for queues in theirs.values() for each in queues})
    unseen = [name for name in found.unknown if name in ADAPTERS]
    if queue and theirs and queue not in known and not unseen:
        whose = " or ".join(sorted(theirs))
        field = f"{_TASK}.queue" if wish.queue else f"{said.path}.{QUEUE}"
        yield _unknown_queue_problem(field, queue, whose, known)


def _with_admission(
    gang: GangSettings,
    said: _EffectiveSettings,
    wish: vocabulary.GangOptions,
    found: Capabilities,
    reasons: list[str],
) -> Selection:
    """Return the selection with queue admission, if a queue applies to the job."""
    adapter = ADAPTERS[gang.scheduler][gang.pod_groups_by]
    queue, why = _select_admission_queue(said.gang, wish, found)
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
    problems = _check_queues(gang, wish, found, said.path)
    return Selection(
        gang=gang, reasons=(*reasons, *_iter_admin_warnings(gang, found)), problems=tuple(problems)
    )


def _select_admission_queue(
    said: GangSettings, wish: vocabulary.GangOptions, found: Capabilities, alone: str = ""
) -> tuple[str, str]:
    """Return the admission queue and the reason for it, or no queue and the reason against it.

    `alone` is the platform's queue, if no other scheduler can use it.
    """
    admits = find_admission_adapter(ADAPTERS)
    name = admits[0] if admits else ""
    known = found.queues.get(name, ())
    choices = (
        (said.local_queue, bool(said.local_queue), f"set by {PATH}.{LOCAL_QUEUE}"),
        (
            wish.queue or "",
            wish.queue in known,
            f"it is a queue of {name} in this namespace, and the task names it",
        ),
        (alone, alone in known, f"it is a queue of {name} in this namespace, and {PATH} names it"),
        (_DEFAULT_QUEUE, _DEFAULT_QUEUE in known, f"{name} has a queue of this name in the namespace"),
    )
    queue, _, why = next((each for each in choices if each[1]), ("", False, ""))
    others = [each for each, queues in found.queues.items() if each != name and wish.queue in queues]
    if queue == _DEFAULT_QUEUE and wish.queue != queue and not said.local_queue and others:
        return "", f"Not after queue {queue}: the task's {wish.queue} is one of {others[0]}"
    if queue and admits and (denied := admits[1].denied(found)):
        return "", f"Not after queue {queue}: {denied}"
    return queue, why


def _format_unknown_facts(found: Capabilities) -> str:
    """Return a clause with the unknown facts that might have shown another scheduler."""
    lines = [f"; {name.replace('_', '-')} is not known: {why}" for name, why in found.unknown.items()]
    return "".join(lines) or ("; the capabilities of the cluster are not known" if found.apis is None else "")


def _iter_admin_warnings(gang: GangSettings, found: Capabilities) -> Iterator[str]:
    """Yield the warnings for an admin about this scheduler on this cluster."""
    if found.operator_scheduler and gang.pod_groups_by != OPERATOR:
        yield (
            f"The training-operator runs with --gang-scheduler-name={found.operator_scheduler}, and "
            "creates a group for every job, which these gangs do not use."
        )
    if found.schedulers is not None and (name := gang.scheduler_name or _get_scheduler_name(gang)) not in (
        "",
        *found.schedulers,
    ):
        yield f"No pod was bound by {name} recently."


def _get_scheduler_name(gang: GangSettings) -> str:
    return ADAPTERS[gang.scheduler][gang.pod_groups_by].scheduler_name


def _format_selection(gang: GangSettings) -> str:
    """Return the start of a sentence that names the selected scheduler."""
    return f"Gangs are for {_format_scheduler(gang.scheduler, gang.pod_groups_by)}"


def _format_scheduler(name: str, pod_groups_by: str) -> str:
    return f"{name} ({pod_groups_by})" if pod_groups_by else name
