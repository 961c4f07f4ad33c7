"""Checks of ResourceQuotas and LimitRanges against all pods of the job."""

from collections.abc import Iterator, Mapping
from typing import Final

from backend_plugin.core.quantity import InvalidQuantity, Quantity, add_quantities, parse
from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments, role_pods
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.facts import Facts, Subject

_PLAIN: Final = ("cpu", "memory", "ephemeral-storage")
_NOTHING: Final = parse("0")


def _compute_requested(facts: Facts) -> Mapping[str, Quantity]:
    """Return the amounts that the job adds to a quota, by the quota's resource names."""
    needed, limits = (
        role_pods.compute_needed_requests(facts.task),
        role_pods.compute_needed_limits(facts.task),
    )
    job = facts.task.dialect.resource
    count = parse(str(role_pods.count_needed_pods(facts.task)))
    return {
        **{f"requests.{name}": amount for name, amount in needed.items()},
        **{name: amount for name, amount in needed.items() if name in _PLAIN},
        **{f"limits.{name}": amount for name, amount in limits.items()},
        **dict.fromkeys(("pods", "count/pods", "services", "count/services"), count),
        f"count/{job.plural}.{job.group}": parse("1"),
    }


def _iter_quotas(facts: Facts) -> Iterator[tuple[Manifest, Mapping[str, Quantity], Mapping[str, Quantity]]]:
    """Yield each quota that counts all pods, with its limits and its used amounts."""
    for each in facts.get_objects(Subject.QUOTAS):
        spec = get_mapping(each, "spec")
        if not spec.get("scopes") and not spec.get("scopeSelector"):
            yield (
                each,
                _parse_amounts(get_mapping(spec, "hard")),
                _parse_amounts(get_mapping(each, "status", "used")),
            )


def _parse_amounts(manifest: Manifest) -> Mapping[str, Quantity]:
    amounts = {}
    for name, amount in manifest.items():
        try:
            amounts[name] = parse(str(amount))
        except InvalidQuantity:
            continue
    return amounts


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
    most, least = _parse_amounts(get_mapping(limit, "max")), _parse_amounts(get_mapping(limit, "min"))
    for role in facts.task.roles:
        for container in get_mappings(role.pod, "spec", "containers"):
            resources = get_mapping(container, "resources")
            requested, bound = (
                _parse_amounts(get_mapping(resources, "requests")),
                _parse_amounts(get_mapping(resources, "limits")),
            )
            larger = {**requested, **bound}
            wrong = [
                *(
                    f"{amount.text} {name}, and the maximum is {most[name].text}"
                    for name, amount in larger.items()
                    if name in most and amount > most[name]
                ),
                *(
                    f"{amount.text} {name}, and the minimum is {least[name].text}"
                    for name, amount in requested.items()
                    if name in least and amount < least[name]
                ),
            ]
            for each in wrong:
                yield Violation(
                    sentence=f"the LimitRange {deployments.get_name(ranges)} rejects the container "
                    f"{get_text(container, 'name')} of a {role.name}: it requests {each}",
                    remedy=f"kubectl edit limitrange {deployments.get_name(ranges)} -n "
                    f"{deployments.get_namespace(ranges)}  # or change Resources in the task",
                )
