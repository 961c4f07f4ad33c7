"""Checks of ResourceQuotas and LimitRanges against all pods of the job."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core.reading import get_mapping
from backend_plugin.core.scheduling.pod_requests import Amounts
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import role_pods
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.deployments import get_name, get_namespace
from backend_plugin.doctor.facts import Facts, Subject
from backend_plugin.embedded.resources import parse_quantities
from kfpytorch_common.quantity import Quantity, add_quantities, parse

_PLAIN: Final = ("cpu", "memory", "ephemeral-storage")
_NOTHING: Final = parse("0")
LIMIT_EXCEEDED: Final = "usage per Container is"
"""A part of the message with which a LimitRange rejects a pod."""


def _compute_requested(facts: Facts) -> Amounts:
    """Return the amounts that the job adds to a quota, by the quota's resource names."""
    needed = role_pods.compute_needed_requests(facts.task)
    limits = role_pods.compute_needed_limits(facts.task)
    pods = parse(str(sum(role.needed for role in facts.task.roles)))
    job = facts.task.dialect.resource
    return {
        **{f"requests.{name}": amount for name, amount in needed.items()},
        **{name: amount for name, amount in needed.items() if name in _PLAIN},
        **{f"limits.{name}": amount for name, amount in limits.items()},
        f"count/{job.plural}.{job.group}": parse("1"),
        **dict.fromkeys(("pods", "count/pods"), pods),
    }


def _iter_limited(facts: Facts) -> Iterator[tuple[Manifest, str, Quantity, Quantity, Quantity]]:
    """Yield (quota, resource, requested, hard, used) for each resource of the quotas without scopes."""
    requested = _compute_requested(facts)
    for each in facts.get_objects(Subject.QUOTAS):
        spec, used = get_mapping(each, "spec"), parse_quantities(get_mapping(each, "status", "used"))
        hard = parse_quantities(get_mapping(spec, "hard"))
        if not spec.get("scopes") and not spec.get("scopeSelector"):
            for name in sorted(requested.keys() & hard.keys()):
                yield each, name, requested[name], hard[name], used.get(name, _NOTHING)


CHECKS: Final = CheckList()


@CHECKS.add(Subject.QUOTAS, Subject.ROLES)
def _check_quota_too_small(facts: Facts) -> Iterator[Violation]:
    """Check that the quotas of the namespace allow all replicas together."""
    for quota, name, requested, hard, _ in _iter_limited(facts):
        if requested > hard:
            yield Violation(
                f"the quota {get_name(quota)} allows {hard.text} {name}, but the job needs {requested.text}: "
                "it would never run",
                _format_raise_command(quota, name, requested),
            )


@CHECKS.add(Subject.QUOTAS, Subject.ROLES, level=Severity.WARNING)
def _check_quota_full(facts: Facts) -> Iterator[Violation]:
    """Check that the quotas of the namespace have capacity for all replicas now."""
    for quota, name, requested, hard, used in _iter_limited(facts):
        together = add_quantities((requested, used))
        if requested <= hard < together:
            yield Violation(
                f"the quota {get_name(quota)} has no capacity now: {used.text} of {hard.text} {name} are "
                f"used, and the job needs {requested.text}",
                f"{_format_raise_command(quota, name, together)}  # or wait",
            )


def _format_raise_command(quota: Manifest, name: str, amount: Quantity) -> str:
    patch = f'{{"spec":{{"hard":{{"{name}":"{amount.text}"}}}}}}'
    return f"kubectl patch resourcequota {get_name(quota)} -n {get_namespace(quota)} -p '{patch}'"


@CHECKS.add(Subject.LIMIT_RANGES, Subject.POD_TRIALS)
def _check_limit_range(facts: Facts) -> Iterator[Violation]:
    """Check that the LimitRanges of the namespace allow each container."""
    names = " ".join(map(get_name, facts.get_objects(Subject.LIMIT_RANGES)))
    for role, reply in facts.pod_replies.items():
        if LIMIT_EXCEEDED in reply.message:
            yield Violation(
                f"a LimitRange rejects a {role} pod: {reply.message}",
                f"kubectl edit limitrange {names} -n {facts.namespace}  # or change Resources in the task",
            )
