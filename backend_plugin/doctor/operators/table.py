"""The table of all operators, by the name of their dialect (kind of job). Only this module imports them.

To add an operator, add a folder next to this module and a row here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.values import Manifest
from backend_plugin.doctor.check import Check, Violation
from backend_plugin.doctor.facts import Facts
from backend_plugin.doctor.operators import pytorchjob, trainjob
from backend_plugin.doctor.operators.base import OperatorSupport

OPERATORS: Final[Mapping[str, OperatorSupport]] = {
    "PyTorchJob": pytorchjob.OPERATOR,
    "TrainJob": trainjob.OPERATOR,
}


def _limit_to_dialect(check: Check, dialect: str) -> Check:
    def judge(facts: Facts) -> Iterable[Violation]:
        return check.judge(facts) if facts.task.dialect.name == dialect else ()

    return replace(check, judge=judge)


CHECKS: Final = tuple(
    _limit_to_dialect(check, dialect) for dialect, each in OPERATORS.items() for check in each.checks
)
"""The checks of all operators; each applies to tasks of its dialect."""


def get_operator(dialect: Dialect) -> OperatorSupport:
    """Return the checks and functions of the doctor for the operator of a dialect (kind of job)."""
    return OPERATORS[dialect.name]


def list_operators(facts: Facts) -> Sequence[Manifest]:
    """Return the Deployments that run the operator of the task."""
    return get_operator(facts.task.dialect).program.list_deployments(facts)
