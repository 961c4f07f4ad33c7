"""The input for the selection of a gang scheduler, its result, and checks of the selected queues."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Final

import msgspec

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import GangOptions
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.scheduling.adapter import OPERATOR, QUEUE
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.gang_settings import AUTO, LOCAL_QUEUE, GangSettings
from backend_plugin.core.scheduling.registry import ADAPTERS, ADMISSION_SCHEDULER

TASK_QUEUE: Final = "custom.kfpytorch.gang.queue"
_NO_GANG: Final = GangSettings()


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the selection: the gang scheduler of a job, or none."""

    gang: GangSettings = _NO_GANG
    """The settings for the job; the scheduler is a key of `registry.ADAPTERS` or `NONE`, never `AUTO`."""
    reasons: Sequence[str] = ()
    """The reasons as sentences; the first names the selected scheduler."""
    problems: Sequence[Problem] = ()
    """The reasons why the job cannot have a gang scheduler."""


class SchedulerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The input for selecting a job's gang scheduler: settings, author's options and cluster capabilities."""

    gang: GangSettings
    path: str
    """The path of the settings in their file."""
    options: GangOptions
    cluster: Capabilities

    @property
    def scheduler(self) -> str | None:
        """The scheduler that the author of the task names; None if the author names none or ``auto``."""
        return None if self.options.scheduler == AUTO else self.options.scheduler

    def build_selection(
        self, gang: GangSettings, reasons: Sequence[str], problems: Iterable[Problem] = ()
    ) -> Selection:
        """Return the selection, with warnings about the cluster and a problem for each unknown queue."""
        return Selection(
            gang=gang,
            reasons=(*reasons, *_iter_admin_warnings(gang, self.cluster)),
            problems=(*problems, *_check_queues(gang, self)),
        )


def _check_queues(gang: GangSettings, request: SchedulerRequest) -> Iterator[Problem]:
    queues = [(f"{request.path}.{QUEUE}", gang.scheduler, gang.queue)]
    if gang.local_queue:
        queues.insert(0, (f"{request.path}.{LOCAL_QUEUE}", ADMISSION_SCHEDULER, gang.local_queue))
    if request.options.queue:
        # The author names the queue in which the job waits first.
        queues[0] = (TASK_QUEUE, queues[0][1], request.options.queue)
    for field, scheduler, queue in queues:
        # The queues of a scheduler may be unknown.
        known = request.cluster.queues.get(scheduler, (queue,))
        if queue and queue not in known:
            yield build_unknown_queue_problem(field, queue, scheduler, known)


def build_unknown_queue_problem(field: str, queue: str, whose: str, known: Sequence[str]) -> Problem:
    """Return the problem of a queue that is not in `known`, the queues of the schedulers named in `whose`."""
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
