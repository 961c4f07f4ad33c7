"""Validation of the policies of a TrainJob for the success and the failure of its nodes."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.protojson import build_problem, check_choice, select_problems
from backend_plugin.core.train_job_options import PodFailureRule, TrainJobOptions
from kfpytorch_common.completion_indexes import FORMAT, contains_index, parse_indexes

DISRUPTION: Final = "DisruptionTarget"
_PATH: Final = "custom.kfpytorch.trainJob"
_ACTIONS: Final = ("FailJob", "Ignore", "Count")
_OPERATORS: Final = ("In", "NotIn")
_STATUSES: Final = ("True", "False", "Unknown")
_MOST_RULES: Final = 19
"""A Job has at most 20 rules, and the backend adds one for disruptions."""


def check_policies(options: TrainJobOptions, nodes: int, *, elastic: bool) -> Iterator[Problem]:
    """Yield a problem for an invalid success policy, each invalid pod failure rule, and too many rules."""
    if options.succeeded_indexes is not None:
        yield from _check_indexes(options.succeeded_indexes, nodes, elastic=elastic)
    rules, path = options.pod_failure_rules, f"{_PATH}.podFailurePolicy"
    if len(rules) > _MOST_RULES:
        remedy = f"write at most {_MOST_RULES}"
        yield Problem(field=path, value=f"{len(rules)} rules", message="has too many rules", remedy=remedy)
    for index, rule in enumerate(rules):
        yield from _check_rule(rule, f"{path}[{index}]")


def _check_indexes(text: str, nodes: int, *, elastic: bool) -> Iterator[Problem]:
    ranges = parse_indexes(text)
    if elastic:
        message, remedy = "names nodes, and rank 0 of an elastic job may be on any node", "leave it out"
    elif ranges is None:
        message, remedy = "is not a set of indexes", f"write {FORMAT}"
    elif not contains_index(text, 0):
        message, remedy = "is without the node that writes the outputs", "add 0"
    elif ranges[-1].stop > nodes:
        message = f"names a node that the job with {nodes} nodes does not have"
        remedy = f"write less than {nodes}"
    else:
        return
    yield build_problem(f"{_PATH}.successPolicy.succeededIndexes", text, message, remedy)


def _check_rule(rule: PodFailureRule, path: str) -> Iterator[Problem]:
    codes, at = [*rule.exit_codes], f"{path}.exitCodes"
    is_unclear = bool(codes) is bool(rule.pod_conditions)
    are_wrong = not all(0 < code < 256 for code in codes)
    either = "must be set if podConditions are not, and only then"
    yield from check_choice(rule.action, _ACTIONS, f"{path}.action")
    yield from check_choice(rule.operator, _OPERATORS, f"{path}.operator")
    yield from select_problems(
        (is_unclear, at, codes, either, "write either exitCodes or podConditions"),
        (are_wrong, at, codes, "are not all exit codes of a failure", "write 1 to 255"),
    )
    for name, status in rule.pod_conditions.items():
        at = f"{path}.podConditions"
        if name == DISRUPTION:
            remedy = "leave it out: a disruption restarts all nodes"
            yield build_problem(at, name, "has a rule that comes before all others", remedy)
        elif status not in _STATUSES:
            remedy = f"write one of {', '.join(_STATUSES)}"
            yield build_problem(f"{at}.{name}", status, "is not a status", remedy)
