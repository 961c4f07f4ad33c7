"""Selection of a gang scheduler for a job, from the settings, the author's options and the capabilities."""

from collections.abc import Iterator, Sequence

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import Attempt, TrainingJob
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.scheduling import registry
from backend_plugin.core.scheduling.adapter import OPERATOR, SchedulerAdapter
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.detection import SCHEDULER, SchedulerRequest, Selection, select_detected
from backend_plugin.core.scheduling.gang_settings import (
    AUTO,
    IN_TREE_WHY,
    LOCAL_QUEUE,
    NONE,
    PATH,
    GangSettings,
)


def select_scheduler(platform: GangSettings, job: TrainingJob, cluster: Capabilities) -> Selection:
    """Return the gang scheduler for a job, or the problems that prevent it."""
    gang, path = _get_effective_settings(platform, job.run)
    why, named = f"set by {path}", job.gang.scheduler
    offered = _list_allowed_schedulers(gang, platform, cluster)
    if named not in (None, *offered):
        return Selection(problems=(_build_not_allowed_problem(str(named), offered),))
    if named == NONE:
        return Selection(reasons=("No gang: the task sets Gang(scheduler='none').",))
    is_detected = gang.scheduler == AUTO
    if named not in (None, AUTO, gang.scheduler):
        is_detected = named not in platform.allowed_schedulers
        if not is_detected:
            gang, path = platform.allowed_schedulers[named], f"{PATH}.allowed-schedulers.{named}"
            why = f"the task sets Gang(scheduler='{named}'), which {PATH}.allowed-schedulers allows"
    request = SchedulerRequest(gang=gang, path=path, options=job.gang, cluster=cluster)
    return select_detected(request) if is_detected else _select_configured(request, why)


def _get_effective_settings(platform: GangSettings, run: Attempt) -> tuple[GangSettings, str]:
    project = f"{run.project}/{run.domain}"
    if project in platform.by_project:
        return platform.by_project[project], f"{PATH}.by-project.{project}"
    if run.namespace in platform.by_namespace:
        return platform.by_namespace[run.namespace], f"{PATH}.by-namespace.{run.namespace}"
    return platform, PATH


def _list_allowed_schedulers(
    settings: GangSettings, platform: GangSettings, cluster: Capabilities
) -> tuple[str, ...]:
    # If the operator creates a pod group for every job, the author cannot choose `NONE`.
    is_forced, detected = settings.pod_groups_by == OPERATOR, []
    if settings.scheduler == AUTO:
        is_forced = bool(cluster.operator_scheduler)
        detected = [name for name, adapter in registry.list_schedulers().items() if adapter.detect]
        detected.append(registry.ADMISSION_SCHEDULER)
    none = () if is_forced else (NONE,)
    return tuple(dict.fromkeys([settings.scheduler, *none, *platform.allowed_schedulers, *detected]))


def _build_not_allowed_problem(scheduler: str, offered: Sequence[str]) -> Problem:
    message = "is not a gang scheduler that a job can use on this platform"
    message = IN_TREE_WHY if scheduler == registry.IN_TREE else message
    return build_problem(SCHEDULER, scheduler, message, f"leave it out, or write {' or '.join(offered)}")


def _select_configured(request: SchedulerRequest, why: str) -> Selection:
    gang, adapter = request.gang, request.gang.adapter
    if adapter is None:
        reasons = [f"No gang: {why}."]
        if operator := request.cluster.operator_scheduler:
            flag = f"--gang-scheduler-name={operator}"
            reasons.append(f"The training-operator runs with {flag}, and creates a pod group nevertheless.")
        return Selection(gang=gang, reasons=tuple(reasons))
    problems = _check_cluster(gang, adapter, request.cluster, request.path)
    return request.build_selection(gang, [f"{gang.title}: {why}."], problems)


def _check_cluster(
    gang: GangSettings, adapter: SchedulerAdapter, cluster: Capabilities, path: str
) -> Iterator[Problem]:
    message = "cannot be used on this cluster: "
    if denied := adapter.find_denial(cluster):
        remedy = f"write {AUTO} to detect the scheduler, or correct the cluster"
        key, value = "scheduler", gang.scheduler
        if gang.pod_groups_by:
            key, value = "pod-groups-by", gang.pod_groups_by
        yield build_problem(f"{path}.{key}", value, message + denied, remedy)
    if gang.local_queue and (denied := registry.ADMISSION_ADAPTER.find_denial(cluster)):
        remedy = "leave it out, or correct the cluster"
        yield build_problem(f"{path}.{LOCAL_QUEUE}", gang.local_queue, message + denied, remedy)
