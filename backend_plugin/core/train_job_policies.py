"""Validation of the policies of a TrainJob for the success and the failure of its nodes."""

from collections.abc import Iterator, Sequence
from typing import Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import PodFailureRule, ReplicaGroup, TrainJobOptions
from backend_plugin.core.protojson import format_value
from kfpytorch_common.completion_indexes import FORMAT, contains_index, parse_indexes

DISRUPTION: Final = "DisruptionTarget"
_PATH: Final = "custom.kfpytorch.trainJob"
_ACTIONS: Final = ("FailJob", "Ignore", "Count")
_OPERATORS: Final = ("In", "NotIn")
_STATUSES: Final = ("True", "False", "Unknown")
_MOST_RULES: Final = 19
"""A Job has at most 20 rules, and one is that of disruptions."""


def check_policies(
    options: TrainJobOptions | None, groups: Sequence[ReplicaGroup], *, elastic: bool
) -> Iterator[Problem]:
    """Yield the problems of the policies, for a job with these replicas."""
    if options is None:
        return
    if options.succeeded_indexes is not None:
        yield from _check_indexes(options.succeeded_indexes, groups, elastic=elastic)
    rules, path = options.pod_failure_rules, f"{_PATH}.podFailurePolicy"
    if len(rules) > _MOST_RULES:
        remedy = f"write at most {_MOST_RULES}"
        yield Problem(field=path, value=f"{len(rules)} rules", message="has too many rules", remedy=remedy)
    for index, rule in enumerate(rules):
        for field, value, message, remedy in _check_rule(rule):
            yield Problem(
                field=f"{path}[{index}].{field}", value=format_value(value), message=message, remedy=remedy
            )


def _check_indexes(text: str, groups: Sequence[ReplicaGroup], *, elastic: bool) -> Iterator[Problem]:
    field, ranges = f"{_PATH}.successPolicy.succeededIndexes", parse_indexes(text)
    nodes = sum(group.replicas for group in groups)
    if elastic:
        message, remedy = "names nodes, and rank 0 of an elastic job may be on any node", "leave it out"
    elif ranges is None:
        message, remedy = "is not a set of indexes", f"write {FORMAT}"
    elif not contains_index(text, 0):
        message, remedy = "is without the node that writes the outputs", "add 0"
    elif ranges[-1].stop > nodes:
        message, remedy = (
            f"names a node that the job with {nodes} nodes does not have",
            f"write less than {nodes}",
        )
    else:
        return
    yield Problem(field=field, value=format_value(text), message=message, remedy=remedy)


def _check_rule(rule: PodFailureRule) -> Iterator[tuple[str, object, str, str]]:
    """Yield the field, value, message and remedy of each problem of a rule."""
    for field, value, known in (("action", rule.action, _ACTIONS), ("operator", rule.operator, _OPERATORS)):
        if value not in known:
            yield field, value, "is not one of its values", f"write one of {', '.join(known)}"
    if bool(rule.exit_codes) is bool(rule.pod_conditions):
        remedy = "write either exitCodes or podConditions"
        yield "exitCodes", [*rule.exit_codes], "must be set if podConditions are not, and only then", remedy
    if not all(0 < code < 256 for code in rule.exit_codes):
        yield "exitCodes", [*rule.exit_codes], "are not all exit codes of a failure", "write 1 to 255"
    for name, status in rule.pod_conditions.items():
        if name == DISRUPTION:
            remedy = "leave it out: a disruption restarts all nodes"
            yield "podConditions", name, "has a rule that comes before all others", remedy
        elif status not in _STATUSES:
            yield f"podConditions.{name}", status, "is not a status", f"write one of {', '.join(_STATUSES)}"
