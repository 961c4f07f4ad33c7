"""The pods of a job, as its operator creates them, and their total resource requests."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from backend_plugin.core.dialects.table import get_dialect
from backend_plugin.core.plan import Plan
from backend_plugin.core.reading import get_mapping, get_mappings
from backend_plugin.core.scheduling import gang_options, pod_requests
from backend_plugin.core.scheduling.adapter import OPERATOR
from backend_plugin.core.scheduling.gang_settings import GangSettings
from backend_plugin.core.values import Manifest
from backend_plugin.doctor.facts import PlannedTask, RolePods
from backend_plugin.doctor.operators.table import get_operator
from kfpytorch_common.quantity import Quantity


def build_role_pods(planned: Plan, gang: GangSettings) -> Sequence[RolePods]:
    """Return the pods of each replica role of a planned job. `gang` contains the gang settings of the job."""
    dialect, name = get_dialect(planned.dialect), _get_scheduler_name(gang)
    added = {"schedulerName": name} if name else {}
    needs_all = gang_options.derives_gang_size(gang, dialect)
    return [
        replace(
            each,
            needed=each.count if needs_all else each.needed,
            pod={**each.pod, "spec": {**added, **get_mapping(each.pod, "spec")}},
        )
        for each in get_operator(dialect).build_role_pods(planned.job, planned.prerequisites)
    ]


def _get_scheduler_name(gang: GangSettings) -> str:
    """Return the scheduler name that the operator writes to pods without one; empty if it writes none."""
    if gang.adapter is None or gang.pod_groups_by != OPERATOR:
        return ""
    return gang.scheduler_name or gang.adapter.scheduler_name


def compute_needed_requests(task: PlannedTask) -> Mapping[str, Quantity]:
    """Return the total requests of the pods that must be scheduled before the job starts."""
    return _compute_needed_amounts((role.needed, role.spec) for role in task.roles)


def compute_all_requests(task: PlannedTask) -> Mapping[str, Quantity]:
    """Return the total requests of all pods, including those that may be scheduled after the start."""
    return _compute_needed_amounts((role.count, role.spec) for role in task.roles)


def compute_needed_limits(task: PlannedTask) -> Mapping[str, Quantity]:
    """Return the total limits of the pods that must be scheduled before the job starts."""
    return _compute_needed_amounts((role.needed, _with_limits_as_requests(role.pod)) for role in task.roles)


def _compute_needed_amounts(pods: Iterable[tuple[int, Manifest]]) -> Mapping[str, Quantity]:
    parts = [
        pod_requests.scale_amounts(count, pod_requests.compute_pod_requests(spec)) for count, spec in pods
    ]
    return {name: amount for name, amount in pod_requests.add_amounts(parts).items() if amount}


def _with_limits_as_requests(pod: Manifest) -> Manifest:
    spec = dict(get_mapping(pod, "spec"))
    for part in ("containers", "initContainers"):
        spec[part] = [
            {**each, "resources": {"requests": get_mapping(each, "resources", "limits")}}
            for each in get_mappings(spec, part)
        ]
    return spec


def has_several_pods(task: PlannedTask) -> bool:
    """True if the job has more than one pod."""
    return sum(role.count for role in task.roles) > 1
