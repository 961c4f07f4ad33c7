"""Checks of ResourceQuotas and LimitRanges against all pods of the job."""

from collections.abc import Iterator, Mapping
from typing import Final

from backend_plugin.core.quantity import NotAQuantity, Quantity, parse, total
from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments, pods
from backend_plugin.doctor.check import Check, Found, Level
from backend_plugin.doctor.facts import Facts, Subject

_PLAIN: Final = ("cpu", "memory", "ephemeral-storage")
_NOTHING: Final = parse("0")


def _asked(facts: Facts) -> Mapping[str, Quantity]:
    """Return the amounts that the job adds to a quota, by the quota's resource names."""
    needed, limits = pods.needed(facts.task), pods.limits(facts.task)
    count = parse(str(pods.count(facts.task)))
    return {
        **{f"requests.{name}": amount for name, amount in needed.items()},
        **{name: amount for name, amount in needed.items() if name in _PLAIN},
        **{f"limits.{name}": amount for name, amount in limits.items()},
        **dict.fromkeys(("pods", "count/pods", "services", "count/services"), count),
        "count/pytorchjobs.kubeflow.org": parse("1"),
    }


def _quotas(facts: Facts) -> Iterator[tuple[Manifest, Mapping[str, Quantity], Mapping[str, Quantity]]]:
    """Yield each quota that counts all pods, with its limits and its used amounts."""
    for each in facts.of(Subject.QUOTAS):
        spec = section(each, "spec")
        if not spec.get("scopes") and not spec.get("scopeSelector"):
            yield each, _amounts(section(spec, "hard")), _amounts(section(each, "status", "used"))


def _amounts(said: Manifest) -> Mapping[str, Quantity]:
    found = {}
    for name, amount in said.items():
        try:
            found[name] = parse(str(amount))
        except NotAQuantity:
            continue
    return found


def _too_small(facts: Facts) -> Iterator[Found]:
    asked = _asked(facts)
    for quota, hard, _ in _quotas(facts):
        for name in sorted(asked.keys() & hard.keys()):
            if asked[name] > hard[name]:
                yield Found(
                    sentence=f"the quota {deployments.name(quota)} allows {hard[name].text} {name}, "
                    f"but the job needs {asked[name].text}: it would never run",
                    remedy=_raised(quota, name, asked[name]),
                )


def _full(facts: Facts) -> Iterator[Found]:
    asked = _asked(facts)
    for quota, hard, used in _quotas(facts):
        for name in sorted(asked.keys() & hard.keys()):
            together = total((asked[name], used.get(name, _NOTHING)))
            if asked[name] <= hard[name] < together:
                yield Found(
                    sentence=f"the quota {deployments.name(quota)} has no capacity now: "
                    f"{used[name].text} of {hard[name].text} {name} are used, "
                    f"and the job needs {asked[name].text}",
                    remedy=f"{_raised(quota, name, together)}  # or wait",
                )


def _raised(quota: Manifest, name: str, amount: Quantity) -> str:
    patch = f'{{"spec":{{"hard":{{"{name}":"{amount.text}"}}}}}}'
    where = f"{deployments.name(quota)} -n {deployments.namespace(quota)}"
    return f"kubectl patch resourcequota {where} -p '{patch}'"


def _out_of_range(facts: Facts) -> Iterator[Found]:
    for ranges in facts.of(Subject.LIMIT_RANGES):
        for limit in entries(section(ranges, "spec"), "limits"):
            if text(limit, "type") == "Container":
                yield from _containers_out_of(limit, ranges, facts)


def _containers_out_of(limit: Manifest, ranges: Manifest, facts: Facts) -> Iterator[Found]:
    most, least = _amounts(section(limit, "max")), _amounts(section(limit, "min"))
    for role in facts.task.roles:
        for container in entries(section(role.pod, "spec"), "containers"):
            resources = section(container, "resources")
            asked, bound = _amounts(section(resources, "requests")), _amounts(section(resources, "limits"))
            larger = {**asked, **bound}
            wrong = [
                *(
                    f"{amount.text} {name}, and the maximum is {most[name].text}"
                    for name, amount in larger.items()
                    if name in most and amount > most[name]
                ),
                *(
                    f"{amount.text} {name}, and the minimum is {least[name].text}"
                    for name, amount in asked.items()
                    if name in least and amount < least[name]
                ),
            ]
            for each in wrong:
                yield Found(
                    sentence=f"the LimitRange {deployments.name(ranges)} rejects the container "
                    f"{text(container, 'name')} of a {role.name}: it requests {each}",
                    remedy=f"kubectl edit limitrange {deployments.name(ranges)} -n "
                    f"{deployments.namespace(ranges)}  # or change Resources in the task",
                )


CHECKS: Final = (
    Check(
        id="quota-small",
        level=Level.ERROR,
        proves="the quotas of the namespace allow all replicas together",
        judge=_too_small,
        needs=(Subject.QUOTAS, Subject.ROLES),
    ),
    Check(
        id="quota-full",
        level=Level.WARNING,
        proves="the quotas of the namespace have capacity for all replicas now",
        judge=_full,
        needs=(Subject.QUOTAS, Subject.ROLES),
    ),
    Check(
        id="limit-range",
        level=Level.ERROR,
        proves="the LimitRanges of the namespace allow each container",
        judge=_out_of_range,
        needs=(Subject.LIMIT_RANGES, Subject.ROLES),
    ),
)
