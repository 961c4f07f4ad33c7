"""The first lines of a report: the cluster, and how the task would run on it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments, pods
from backend_plugin.doctor.facts import Facts, Subject

_VersionOf: TypeAlias = Callable[[Manifest], tuple[int, int, int] | None]


def lines(facts: Facts) -> Mapping[str, str]:
    """Return the lines by subject, such as ``operator`` or ``gang``."""
    if facts.unreachable:
        return {"namespace": facts.namespace}
    return {
        "cluster": f"Kubernetes {facts.version}",
        "namespace": facts.namespace,
        "operator": _told(facts, deployments.operators(facts), deployments.version),
        "flyte": _told(facts, deployments.propellers(facts), deployments.flyte_version),
        "dialect": "PyTorchJob, the only supported kind",
        "gang": _gang(facts),
        "task": _task(facts),
    }


def _told(facts: Facts, found: Sequence[Manifest], version_of: _VersionOf) -> str:
    if Subject.DEPLOYMENTS in facts.unseen:
        return "could not be read"
    told = []
    for each in found:
        version = version_of(each)
        said = ".".join(map(str, version)) if version else "(unknown version)"
        told.append(f"{deployments.namespace(each)}/{deployments.name(each)} {said}")
    return ", ".join(told) or "none found"


def _gang(facts: Facts) -> str:
    """Return the reasons of the plan; the first one names the gang scheduler."""
    return " ".join(facts.gang_reasons) or "not chosen, because the task cannot be planned"


def _task(facts: Facts) -> str:
    task = facts.task
    name = task.name or "no task given; a generic task with the default resources of the platform"
    if task.job is None:
        return f"{name}; it cannot be planned"
    roles = " and ".join(f"{each.count} {each.name}{'s' if each.count > 1 else ''}" for each in task.roles)
    asked = ", ".join(f"{amount.text} {resource}" for resource, amount in pods.needed(task).items())
    return f"{name}: {roles}, which need {asked or 'nothing'}"
