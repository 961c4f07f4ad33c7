"""The selection of a gang scheduler for a job, from the settings, the author's options and the capabilities.

`kube.findings` discovers the capabilities, and `wishes` builds the gang for the selected scheduler.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import get_close_matches
from typing import Final

from backend_plugin.core import job as vocabulary
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import Run, TrainingJob
from backend_plugin.core.protojson import shown
from backend_plugin.core.scheduling.adapter import QUEUE, TIMEOUT, Adapter, Seen
from backend_plugin.core.scheduling.combination import admitting
from backend_plugin.core.scheduling.findings import Findings
from backend_plugin.core.scheduling.operated import OPERATOR
from backend_plugin.core.scheduling.platform import AUTO, IN_TREE_WHY, LOCAL_QUEUE, NONE, PATH, Ganging
from backend_plugin.core.scheduling.table import ADAPTERS, IN_TREE

_TASK: Final = "custom.kfpytorch.gang"
_DEFAULT_QUEUE: Final = "default"
"""Kueue puts a job without a queue name into the LocalQueue of this name, if the namespace has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The gang scheduler of a job, or none."""

    gang: Ganging
    """The settings for the job: a scheduler of the table or `NONE`, never `AUTO`."""
    reasons: Sequence[str] = ()
    """The reasons as sentences; the first names the selected scheduler."""
    problems: Sequence[Problem] = ()
    """The reasons why the job cannot have a gang scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """The settings that apply to a job, with their path and the reason."""

    gang: Ganging
    path: str
    why: str


def select(platform: Ganging, job: TrainingJob, found: Findings) -> Selection:
    """Return the gang scheduler for a job."""
    wish = job.gang or vocabulary.Gang()
    said = _of_run(platform, job.run)
    offered = _offered(said.gang, platform, found)
    if wish.scheduler is not None and wish.scheduler not in offered:
        return Selection(gang=Ganging(), problems=(_not_offered(wish.scheduler, offered, found),))
    if wish.scheduler == NONE:
        return Selection(gang=Ganging(), reasons=("No gang: the task sets Gang(scheduler='none').",))
    if wish.scheduler not in (None, AUTO, said.gang.scheduler):
        if wish.scheduler not in platform.choices:
            return _found(said, wish, found)
        path = f"{PATH}.choices.{wish.scheduler}"
        why = f"the task sets Gang(scheduler='{wish.scheduler}'), which {PATH}.choices allows"
        said = _Said(gang=platform.choices[wish.scheduler], path=path, why=why)
    return _found(said, wish, found) if said.gang.scheduler == AUTO else _explicit(said, wish, found)


def _of_run(platform: Ganging, run: Run) -> _Said:
    """Return the settings for the project and domain, the namespace or the platform; the first wins."""
    project = f"{run.project}/{run.domain}"
    for name, key, parts in (
        ("by-project", project, platform.by_project),
        ("by-namespace", run.namespace, platform.by_namespace),
    ):
        if key in parts:
            path = f"{PATH}.{name}.{key}"
            return _Said(gang=parts[key], path=path, why=f"set by {path}")
    whole = replace(platform, by_project={}, by_namespace={}, choices={})
    return _Said(gang=whole, path=PATH, why=f"set by {PATH}")


def _offered(said: Ganging, platform: Ganging, found: Findings) -> tuple[str, ...]:
    """Return the schedulers that an author may name.

    If the operator creates a pod group for every job, the author cannot choose `NONE`.
    """
    is_auto = said.scheduler == AUTO
    is_forced = said.style == OPERATOR or (is_auto and found.operator_scheduler)
    sighted = [
        name
        for name, styles in ADAPTERS.items()
        if is_auto and any(each.sighting for each in styles.values())
    ]
    none = () if is_forced else (NONE,)
    admits = admitting(ADAPTERS) if is_auto else None
    alone = () if admits is None else (admits[0],)
    return tuple(dict.fromkeys([said.scheduler, *none, *platform.choices, *sighted, *alone]))


def _not_offered(wanted: str, offered: Sequence[str], found: Findings) -> Problem:
    message = "is not a gang scheduler that a job can use on this platform"
    if wanted == IN_TREE:
        message = IN_TREE_WHY + _in_tree_here(found)
    return _problem(f"{_TASK}.scheduler", wanted, message, f"leave it out, or write {' or '.join(offered)}")


def _in_tree_here(found: Findings) -> str:
    if found.kubernetes is None:
        return ""
    versions = [each for each in (found.apis or {}).get("scheduling.k8s.io", ()) if each != "v1"]
    kept = {True: "keeps", False: "drops", None: "may keep"}[found.keeps_scheduling_group]
    served = f"serves scheduling.k8s.io/{', '.join(versions)}" if versions else "serves none of its kinds"
    return f"; this cluster is Kubernetes {found.kubernetes}, {served}, and {kept} the field of a pod"


# ---- a scheduler that the settings name


def _explicit(said: _Said, wish: vocabulary.Gang, found: Findings) -> Selection:
    gang, adapter = said.gang, said.gang.adapter
    if adapter is None:
        return Selection(gang=gang, reasons=(f"No gang: {said.why}.",))
    reasons = [f"{_called(gang)}: {said.why}."]
    problems = [*_against(gang, adapter, found, said.path), *_unknown_queues(gang, wish, found, said.path)]
    return Selection(gang=gang, reasons=(*reasons, *_noted(gang, found)), problems=tuple(problems))


def _against(gang: Ganging, adapter: Adapter, found: Findings, path: str) -> Iterator[Problem]:
    """Yield a problem if the cluster cannot be used as the settings require."""
    remedy = f"write {AUTO} to detect the scheduler, or correct the cluster"
    if denied := adapter.denied(found):
        key, value = ("style", gang.style) if gang.style else ("scheduler", gang.scheduler)
        yield _problem(f"{path}.{key}", value, f"cannot be used on this cluster: {denied}", remedy)
    admits = admitting(ADAPTERS)
    if gang.local_queue and admits is not None and (denied := admits[1].denied(found)):
        message = f"cannot be used on this cluster: {denied}"
        yield _problem(
            f"{path}.{LOCAL_QUEUE}", gang.local_queue, message, "leave it out, or correct the cluster"
        )


def _unknown_queues(gang: Ganging, wish: vocabulary.Gang, found: Findings, path: str) -> Iterator[Problem]:
    for key, scheduler, mine, theirs in _queues(gang, wish):
        known = found.queues.get(scheduler)
        queue = theirs or mine
        if queue and known is not None and queue not in known:
            yield _no_queue(f"{_TASK}.queue" if theirs else f"{path}.{key}", queue, scheduler, known)


def _no_queue(field: str, queue: str, whose: str, known: Sequence[str]) -> Problem:
    near = get_close_matches(queue, known, n=3) or sorted(known)[:3]
    remedy = f"write {' or '.join(near)}" if near else f"create a queue of {whose} for this namespace"
    return _problem(field, queue, f"is not a queue of {whose} for this namespace", remedy)


def _queues(gang: Ganging, wish: vocabulary.Gang) -> Iterator[tuple[str, str, str, str]]:
    """Yield the key of the setting, the scheduler, the platform's queue and the author's queue."""
    admits = admitting(ADAPTERS)
    is_both = bool(gang.local_queue) and admits is not None
    if admits is not None and is_both:
        yield LOCAL_QUEUE, admits[0], gang.local_queue, wish.queue or ""
    yield QUEUE, gang.scheduler, gang.queue, "" if is_both else wish.queue or ""


# ---- a scheduler that is detected


def _found(said: _Said, wish: vocabulary.Gang, found: Findings) -> Selection:
    """Return the scheduler of the matching rule with the lowest rank, among those that the author allows."""
    wanted = None if wish.scheduler == AUTO else wish.scheduler
    # With queue admission, the author's queue is the admission queue.
    queue = said.gang.queue if _admission(said.gang, wish, found)[0] else wish.queue or said.gang.queue
    passed, ranked = [], []
    for name, style, adapter in _sighted(wanted):
        sighting = adapter.sighting
        seen = sighting.sees(found, queue) if sighting else None
        if sighting is None or seen is None:
            continue
        if denied := adapter.denied(found):
            passed.append(f"Not {_titled(name, style)}: {denied}.")
            continue
        ranked.append((sighting.rank, _settled(said.gang, (name, style, adapter), seen), seen))
    if not ranked:
        return _nobody(said, wish, found)
    _, gang, seen = min(ranked, key=lambda each: each[0])
    others = [
        f"{_titled(each.scheduler, each.style)} is available, too."
        for _, each, _ in ranked
        if each is not gang
    ]
    return _with_admission(gang, said, wish, found, [f"{_called(gang)}: {seen.why}.", *others, *passed])


def _sighted(wanted: str | None) -> Iterator[tuple[str, str, Adapter]]:
    for name, styles in ADAPTERS.items():
        for style, adapter in styles.items():
            if wanted in (None, name):
                yield name, style, adapter


def _settled(said: Ganging, which: tuple[str, str, Adapter], seen: Seen) -> Ganging:
    """Return the settings for the detected scheduler, with the options that it supports."""
    name, style, adapter = which
    return Ganging(
        scheduler=name,
        style=style,
        scheduler_name=seen.scheduler_name,
        queue=said.queue if QUEUE in adapter.understands else "",
        timeout=said.timeout if TIMEOUT in adapter.understands else timedelta(0),
    )


def _nobody(said: _Said, wish: vocabulary.Gang, found: Findings) -> Selection:
    """Return the selection if no scheduler of pods is detected; a queue may still admit the job."""
    admits = admitting(ADAPTERS)
    # The admitting scheduler gets the platform's queue if there is no other scheduler.
    queue, why = _admission(said.gang, wish, found, said.gang.queue)
    if admits is not None and queue and wish.scheduler in (None, AUTO, admits[0]):
        gang = Ganging(scheduler=admits[0], queue=queue)
        reasons = (f"{_called(gang)}: {why}.", "No gang scheduler for pods is found.")
        problems = tuple(_unknown_queues(gang, wish, found, said.path))
        return Selection(gang=gang, reasons=reasons, problems=problems)
    astray = [*_queue_of_nobody(said, wish, found)]
    if wish.scheduler not in (None, AUTO):
        astray = astray or [*_not_there(wish.scheduler, why, found)]
        return Selection(gang=Ganging(), problems=tuple(astray))
    nobody = (
        f"No gang, and jobs of several replicas may block each other: no scheduler found{_missing(found)}."
    )
    reasons = (nobody, *([f"{why}."] if why else ()))
    return Selection(gang=Ganging(), reasons=reasons, problems=tuple(astray))


def _not_there(wanted: str, why: str, found: Findings) -> Iterator[Problem]:
    """Yield the reason why a task cannot have the scheduler that it names."""
    known = found.queues.get(wanted)
    if known and not why:
        yield _problem(f"{_TASK}.queue", "", f"is required by {wanted}", f"write {' or '.join(known[:3])}")
    else:
        missing = f"cannot be used on this cluster: {why}" if why else "is not found on this cluster"
        yield _problem(f"{_TASK}.scheduler", wanted, f"{missing}{_missing(found)}", "leave it out")


def _queue_of_nobody(said: _Said, wish: vocabulary.Gang, found: Findings) -> Iterator[Problem]:
    """Yield a problem if the job names a queue and the known queues do not include it."""
    queue = wish.queue or said.gang.queue
    theirs = {name: queues for name, queues in found.queues.items() if wish.scheduler in (None, AUTO, name)}
    known = sorted({each for queues in theirs.values() for each in queues})
    unseen = [name for name in found.unknown if name in ADAPTERS]
    if queue and theirs and queue not in known and not unseen:
        whose = " or ".join(sorted(theirs))
        field = f"{_TASK}.queue" if wish.queue else f"{said.path}.{QUEUE}"
        yield _no_queue(field, queue, whose, known)


def _with_admission(
    gang: Ganging, said: _Said, wish: vocabulary.Gang, found: Findings, reasons: list[str]
) -> Selection:
    """Return the selection with queue admission, if a queue applies to the job."""
    adapter = ADAPTERS[gang.scheduler][gang.style]
    queue, why = _admission(said.gang, wish, found)
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
    problems = _unknown_queues(gang, wish, found, said.path)
    return Selection(gang=gang, reasons=(*reasons, *_noted(gang, found)), problems=tuple(problems))


def _admission(said: Ganging, wish: vocabulary.Gang, found: Findings, alone: str = "") -> tuple[str, str]:
    """Return the admission queue and the reason for it, or no queue and the reason against it.

    `alone` is the platform's queue, if no other scheduler can use it.
    """
    admits = admitting(ADAPTERS)
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


def _missing(found: Findings) -> str:
    """Return a clause with the unknown facts that might have shown another scheduler."""
    lines = [f"; {name.replace('_', '-')} is not known: {why}" for name, why in found.unknown.items()]
    return "".join(lines) or ("; the capabilities of the cluster are not known" if found.apis is None else "")


def _noted(gang: Ganging, found: Findings) -> Iterator[str]:
    """Yield the warnings for an admin about this scheduler on this cluster."""
    if found.operator_scheduler and gang.style != OPERATOR:
        yield (
            f"The training-operator runs with --gang-scheduler-name={found.operator_scheduler}, and "
            "creates a "
            "group for every job, which these gangs do not use."
        )
    if found.schedulers is not None and (name := gang.scheduler_name or _name(gang)) not in (
        "",
        *found.schedulers,
    ):
        yield f"No pod was bound by {name} recently."


def _name(gang: Ganging) -> str:
    return ADAPTERS[gang.scheduler][gang.style].scheduler_name


def _called(gang: Ganging) -> str:
    """Return the start of a sentence that names the selected scheduler."""
    return f"Gangs are for {_titled(gang.scheduler, gang.style)}"


def _titled(name: str, style: str) -> str:
    return f"{name} ({style})" if style else name


def _problem(path: str, value: object, message: str, remedy: str) -> Problem:
    return Problem(field=path, value=shown(value), message=message, remedy=remedy)
