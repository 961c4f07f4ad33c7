"""The first lines of a report: the cluster, and how the task would run on it."""

from collections.abc import Callable, Mapping, Sequence

from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments, role_pods
from backend_plugin.doctor.facts import Facts, RolePods, Subject
from backend_plugin.doctor.operators.table import list_operators


def build_lines(facts: Facts) -> Mapping[str, str]:
    """Return the first lines of the report, by label: ``cluster``, ``namespace``, ``operator`` etc."""
    if facts.unreachable:
        return {"namespace": facts.namespace}
    return {
        "cluster": f"Kubernetes {facts.version}",
        "namespace": facts.namespace,
        "operator": _format_deployments(facts, list_operators(facts), deployments.find_version),
        "flyte": _format_deployments(
            facts, deployments.list_propellers(facts), deployments.find_flyte_version
        ),
        "dialect": " ".join(facts.task.dialect_reasons)
        or f"The job is a {facts.task.dialect.name}: the cluster supports no other kind.",
        "gang": " ".join(facts.gang_reasons) or "not chosen, because the task cannot be planned",
        "task": _format_task(facts),
    }


def _format_deployments(
    facts: Facts, found: Sequence[Manifest], version_of: Callable[[Manifest], tuple[int, int, int] | None]
) -> str:
    if Subject.DEPLOYMENTS in facts.unseen:
        return "could not be read"
    descriptions = []
    for each in found:
        version = version_of(each)
        version_text = deployments.format_version(version) if version else "(unknown version)"
        descriptions.append(f"{deployments.get_namespace(each)}/{deployments.get_name(each)} {version_text}")
    return ", ".join(descriptions) or "none found"


def _format_role(role: RolePods) -> str:
    return f"{role.count} {role.name}{'s' if role.count > 1 else ''}"


def _format_task(facts: Facts) -> str:
    task = facts.task
    name = task.name or "no task given; a generic task with the default resources of the platform"
    if task.plan is None:
        return f"{name}; it cannot be planned"
    roles = " and ".join(map(_format_role, task.roles))
    amounts = role_pods.compute_needed_requests(task).items()
    requests = ", ".join(f"{amount.text} {resource}" for resource, amount in amounts)
    return f"{name}: {roles}, which need {requests or 'nothing'}"
