"""Selects a gang scheduler and an admission queue for a job from the capabilities of the cluster.

An admission queue is a queue of Kueue that starts a job before another scheduler places the pods.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from difflib import get_close_matches
from itertools import chain
from typing import Final

import msgspec

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import GangOptions
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.scheduling.adapter import OPERATOR, QUEUE, TIMEOUT, DetectionRank
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.gang_settings import AUTO, LOCAL_QUEUE, PATH, GangSettings
from backend_plugin.core.scheduling.registry import ADAPTERS, ADMISSION_ADAPTER, ADMISSION_SCHEDULER

SCHEDULER: Final = "custom.kfpytorch.gang.scheduler"
_QUEUE: Final = "custom.kfpytorch.gang.queue"
_NO_GANG: Final = GangSettings()
_DEFAULT_QUEUE: Final = "default"
"""The name of the LocalQueue into which Kueue puts a job without a queue name, if the queue exists."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The gang scheduler that was selected for a job, or none, with the reasons and problems."""

    gang: GangSettings = _NO_GANG
    """The settings for the job; the scheduler is a key of `registry.ADAPTERS` or `NONE`, never `AUTO`."""
    reasons: Sequence[str] = ()
    """The reasons for the selection, as sentences; the first names the selected scheduler."""
    problems: Sequence[Problem] = ()


class SchedulerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The input for selecting a job's gang scheduler: settings, author's options and cluster capabilities."""

    gang: GangSettings
    path: str
    """The path of `gang` in the settings file."""
    options: GangOptions
    cluster: Capabilities

    @property
    def scheduler(self) -> str | None:
        """The scheduler that the author of the task names; None if the author names none or ``auto``."""
        return None if self.options.scheduler == AUTO else self.options.scheduler

    def build_selection(
        self, gang: GangSettings, reasons: Sequence[str], problems: Iterable[Problem] = ()
    ) -> Selection:
        """Return the selection of `gang`, with warnings for admins and a problem for each unknown queue."""
        reasons = (*reasons, *_iter_admin_warnings(gang, self.cluster))
        return Selection(gang=gang, reasons=reasons, problems=(*problems, *_check_queues(gang, self)))


def _check_queues(gang: GangSettings, request: SchedulerRequest) -> Iterator[Problem]:
    queues = [(f"{request.path}.{QUEUE}", gang.scheduler, gang.queue)]
    if gang.local_queue:
        queues.insert(0, (f"{request.path}.{LOCAL_QUEUE}", ADMISSION_SCHEDULER, gang.local_queue))
    if request.options.queue:
        # The author names the queue in which the job waits first.
        queues[0] = (_QUEUE, queues[0][1], request.options.queue)
    for field, scheduler, queue in queues:
        # The queues of a scheduler may be unknown.
        known = request.cluster.queues.get(scheduler, (queue,))
        if queue and queue not in known:
            yield _build_unknown_queue_problem(field, queue, scheduler, known)


def _build_unknown_queue_problem(field: str, queue: str, whose: str, known: Sequence[str]) -> Problem:
    near = get_close_matches(queue, known, n=3) or sorted(known)[:3]
    remedy = f"write {' or '.join(near)}" if near else f"create a queue of {whose} for this namespace"
    return build_problem(field, queue, f"is not a queue of {whose} for this namespace", remedy)


def _iter_admin_warnings(gang: GangSettings, cluster: Capabilities) -> Iterator[str]:
    if cluster.operator_scheduler and gang.pod_groups_by != OPERATOR:
        yield (
            f"The training-operator runs with --gang-scheduler-name={cluster.operator_scheduler}, and "
            "creates a group for every job, which these gangs do not use."
        )
    name = gang.scheduler_name or ADAPTERS[gang.scheduler][gang.pod_groups_by].scheduler_name
    if cluster.schedulers is not None and name not in ("", *cluster.schedulers):
        yield f"No pod was bound by {name} recently."


def select_detected(request: SchedulerRequest) -> Selection:
    """Return the gang scheduler for a job: the detected one with the lowest `DetectionRank`, or none.

    If the author of the task names a scheduler, only that one is considered. If none is detected, the job may
    still get a queue of Kueue; the result has a problem if the requested scheduler or queue is not usable.
    """
    # With queue admission, the author's queue is the admission queue.
    is_admitted = _select_admission_queue(request)[0] != ""
    queue = "" if is_admitted else request.options.queue
    found = [*_detect_schedulers(request, queue or request.gang.queue)]
    usable = [(rank, gang, why) for rank, gang, why, denied in found if not denied]
    if not usable:
        return _select_without_detection(request)
    _, gang, why = min(usable, key=lambda each: each[0])
    others = [f"{each.scheduler_title} is available, too." for _, each, _ in usable if each is not gang]
    passed = [f"Not {each.scheduler_title}: {denied}." for _, each, _, denied in found if denied]
    return _with_admission(gang, request, [f"{gang.title}: {why}.", *others, *passed])


def _detect_schedulers(
    request: SchedulerRequest, queue: str
) -> Iterator[tuple[DetectionRank, GangSettings, str, str]]:
    """Yield rank, settings, reason and refusal of each gang scheduler that is detected.

    The refusal states why the cluster cannot use the scheduler; empty if it can.
    """
    for name, adapters in ADAPTERS.items():
        for creator, adapter in adapters.items():
            if adapter.detect is None or request.scheduler not in (None, name):
                continue
            if (found := adapter.detect(request.cluster, queue)) is not None:
                gang = replace(
                    _inherit_options(request.gang, adapter.understands),
                    scheduler=name,
                    pod_groups_by=creator,
                    scheduler_name=found.scheduler_name,
                )
                yield found.rank, gang, found.why, adapter.find_denial(request.cluster)


def _inherit_options(platform: GangSettings, options: frozenset[str]) -> GangSettings:
    return GangSettings(
        queue=platform.queue if QUEUE in options else "",
        schedule_timeout=platform.schedule_timeout if TIMEOUT in options else timedelta(0),
    )


def _select_without_detection(request: SchedulerRequest) -> Selection:
    """Return the selection for a cluster without a usable gang scheduler: a queue of Kueue, or no gang."""
    # The admitting scheduler gets the platform's queue if there is no other scheduler.
    queue, why = _select_admission_queue(request, request.gang.queue)
    if queue and request.scheduler in (None, ADMISSION_SCHEDULER):
        gang = GangSettings(scheduler=ADMISSION_SCHEDULER, queue=queue)
        reasons = [f"{gang.title}: {why}.", "No gang scheduler for pods is found."]
        return request.build_selection(gang, reasons)
    unusable = _check_requested_queue(request)
    if request.scheduler is not None:
        unusable = unusable or (_build_unusable_scheduler_problem(request.scheduler, why, request.cluster),)
        return Selection(problems=unusable)
    no_scheduler = (
        "No gang, and jobs of several replicas may block each other: no scheduler "
        f"found{_format_unknown_facts(request.cluster)}."
    )
    return Selection(reasons=(no_scheduler, *([f"{why}."] if why else ())), problems=unusable)


def _build_unusable_scheduler_problem(scheduler: str, why: str, cluster: Capabilities) -> Problem:
    known = cluster.queues.get(scheduler)
    if known and not why:
        remedy = f"write {' or '.join(known[:3])}"
        return build_problem(_QUEUE, "", f"is required by {scheduler}", remedy)
    missing = f"cannot be used on this cluster: {why}" if why else "is not found on this cluster"
    return build_problem(SCHEDULER, scheduler, missing + _format_unknown_facts(cluster), "leave it out")


def _check_requested_queue(request: SchedulerRequest) -> tuple[Problem, ...]:
    """Return a problem if all queues are known, and the queue of the task or platform is not one of them."""
    queue, field = request.options.queue, _QUEUE
    if not queue:
        queue, field = request.gang.queue, f"{request.path}.{QUEUE}"
    queues = {
        name: known for name, known in request.cluster.queues.items() if request.scheduler in (None, name)
    }
    known = sorted({*chain.from_iterable(queues.values())})
    is_unseen = not request.cluster.unknown.keys().isdisjoint(ADAPTERS)
    if is_unseen or not queues or queue in ("", *known):
        return ()
    return (_build_unknown_queue_problem(field, queue, " or ".join(sorted(queues)), known),)


def _with_admission(gang: GangSettings, request: SchedulerRequest, reasons: list[str]) -> Selection:
    queue, why = _select_admission_queue(request)
    refusal = ADAPTERS[gang.scheduler][gang.pod_groups_by].not_after_admission
    if queue and refusal:
        skipped = request.gang.local_queue or queue
        reasons.append(f"Not after queue {skipped}, because the gang is for {gang.scheduler}: {refusal}.")
    elif queue:
        gang = replace(gang, local_queue=queue)
        reasons.append(f"The job waits in queue {queue} first: {why}.")
    elif why:
        reasons.append(f"{why}.")
    return request.build_selection(gang, reasons)


def _select_admission_queue(request: SchedulerRequest, alone: str = "") -> tuple[str, str]:
    """Return the name of the admission queue for a job, and the reason for it.

    If no queue can admit the job, the name is empty. The reason then states why, or is empty, too.
    `alone` is a queue to consider if no gang scheduler is detected: the one in the platform's settings.
    """
    queue, why = _find_admission_queue(request, alone)
    refusal = _get_queue_refusal(queue, request) if queue else ""
    return ("", f"Not after queue {queue}: {refusal}") if refusal else (queue, why)


def _find_admission_queue(request: SchedulerRequest, alone: str) -> tuple[str, str]:
    if request.gang.local_queue:
        default = request.gang.local_queue, f"set by {PATH}.{LOCAL_QUEUE}"
        return (request.options.queue, "the task names this queue") if request.options.queue else default
    known = f"it is a queue of {ADMISSION_SCHEDULER} in this namespace, and "
    reasons = (
        (request.options.queue or "", f"{known}the task names it"),
        (alone, f"{known}{PATH} names it"),
        (_DEFAULT_QUEUE, f"{ADMISSION_SCHEDULER} has a queue of this name in the namespace"),
    )
    queues = request.cluster.queues.get(ADMISSION_SCHEDULER, ())
    return next((each for each in reasons if each[0] in queues), ("", ""))


def _get_queue_refusal(queue: str, request: SchedulerRequest) -> str:
    """Return the reason why a job cannot be admitted by this queue of Kueue; empty if it can."""
    requested = request.options.queue
    # Neither the task nor the settings name the default queue of Kueue.
    if queue not in (requested, request.gang.local_queue):
        for scheduler, queues in request.cluster.queues.items():
            if requested in queues and scheduler != ADMISSION_SCHEDULER:
                return f"the task's {requested} is one of {scheduler}"
    return ADMISSION_ADAPTER.find_denial(request.cluster)


def _format_unknown_facts(cluster: Capabilities) -> str:
    lines = [f"; {name.replace('_', '-')} is not known: {why}" for name, why in cluster.unknown.items()]
    if not lines and cluster.apis is None:
        return "; the capabilities of the cluster are not known"
    return "".join(lines)
