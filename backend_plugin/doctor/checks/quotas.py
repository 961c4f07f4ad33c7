"""Checks of ResourceQuotas and LimitRanges against all pods of the job."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core.quantity import Quantity, add_quantities, parse
from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.scheduling.pod_requests import Amounts
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments, role_pods
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.facts import Facts, Subject
from backend_plugin.embedded.resources import parse_quantities

_PLAIN: Final = ("cpu", "memory", "ephemeral-storage")
_NOTHING: Final = parse("0")


def _compute_requested(facts: Facts) -> Amounts:
    """Return the amounts that the job adds to a quota, by the quota's resource names."""
    needed = role_pods.compute_needed_requests(facts.task)
    limits = role_pods.compute_needed_limits(facts.task)
    job = facts.task.dialect.resource
    count = parse(str(role_pods.count_needed_pods(facts.task)))
    return {
        **{f"requests.{name}": amount for name, amount in needed.items()},
        **{name: amount for name, amount in needed.items() if name in _PLAIN},
        **{f"limits.{name}": amount for name, amount in limits.items()},
        **dict.fromkeys(("pods", "count/pods", "services", "count/services"), count),
        f"count/{job.plural}.{job.group}": parse("1"),
    }


def _iter_quotas(facts: Facts) -> Iterator[tuple[Manifest, Amounts, Amounts]]:
    """Yield each quota that counts all pods, with its limits and its used amounts."""
    for each in facts.get_objects(Subject.QUOTAS):
        spec = get_mapping(each, "spec")
        if not spec.get("scopes") and not spec.get("scopeSelector"):
            yield (
                each,
                parse_quantities(get_mapping(spec, "hard")),
                parse_quantities(get_mapping(each, "status", "used")),
            )


CHECKS: Final = CheckList()


@CHECKS.add(Subject.QUOTAS, Subject.ROLES)
def _check_quota_too_small(facts: Facts) -> Iterator[Violation]:
    """The quotas of the namespace allow all replicas together."""
    requested = _compute_requested(facts)
    for quota, hard, _ in _iter_quotas(facts):
        for name in sorted(requested.keys() & hard.keys()):
            if requested[name] > hard[name]:
                yield Violation(
                    sentence=f"the quota {deployments.get_name(quota)} allows {hard[name].text} {name}, "
                    f"but the job needs {requested[name].text}: it would never run",
                    remedy=_format_raise_command(quota, name, requested[name]),
                )


@CHECKS.add(Subject.QUOTAS, Subject.ROLES, level=Severity.WARNING)
def _check_quota_full(facts: Facts) -> Iterator[Violation]:
    """The quotas of the namespace have capacity for all replicas now."""
    requested = _compute_requested(facts)
    for quota, hard, used in _iter_quotas(facts):
        for name in sorted(requested.keys() & hard.keys()):
            together = add_quantities((requested[name], used.get(name, _NOTHING)))
            if requested[name] <= hard[name] < together:
                yield Violation(
                    sentence=f"the quota {deployments.get_name(quota)} has no capacity now: "
                    f"{used[name].text} of {hard[name].text} {name} are used, "
                    f"and the job needs {requested[name].text}",
                    remedy=f"{_format_raise_command(quota, name, together)}  # or wait",
                )


def _format_raise_command(quota: Manifest, name: str, amount: Quantity) -> str:
    patch = f'{{"spec":{{"hard":{{"{name}":"{amount.text}"}}}}}}'
    where = f"{deployments.get_name(quota)} -n {deployments.get_namespace(quota)}"
    return f"kubectl patch resourcequota {where} -p '{patch}'"


@CHECKS.add(Subject.LIMIT_RANGES, Subject.ROLES)
def _check_limit_range(facts: Facts) -> Iterator[Violation]:
    """The LimitRanges of the namespace allow each container."""
    for ranges in facts.get_objects(Subject.LIMIT_RANGES):
        for limit in get_mappings(ranges, "spec", "limits"):
            if get_text(limit, "type") == "Container":
                yield from _check_containers(limit, ranges, facts)


def _check_containers(limit: Manifest, ranges: Manifest, facts: Facts) -> Iterator[Violation]:
    most, least = (parse_quantities(get_mapping(limit, bound)) for bound in ("max", "min"))
    for role in facts.task.roles:
        for container in get_mappings(role.pod, "spec", "containers"):
            for each in _iter_excesses(get_mapping(container, "resources"), most, least):
                yield Violation(
                    sentence=f"the LimitRange {deployments.get_name(ranges)} rejects the container "
                    f"{get_text(container, 'name')} of a {role.name}: it requests {each}",
                    remedy=f"kubectl edit limitrange {deployments.get_name(ranges)} -n "
                    f"{deployments.get_namespace(ranges)}  # or change Resources in the task",
                )


def _iter_excesses(resources: Manifest, most: Amounts, least: Amounts) -> Iterator[str]:
    """Yield each amount of a container that a LimitRange does not allow, with the limit."""
    requested = parse_quantities(get_mapping(resources, "requests"))
    for name, amount in {**requested, **parse_quantities(get_mapping(resources, "limits"))}.items():
        if amount > most.get(name, amount):
            yield f"{amount.text} {name}, and the maximum is {most[name].text}"
    for name, amount in requested.items():
        if amount < least.get(name, amount):
            yield f"{amount.text} {name}, and the minimum is {least[name].text}"
