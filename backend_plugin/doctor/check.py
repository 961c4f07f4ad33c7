"""The types of checks and their results. The package `checks` contains the checks."""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from backend_plugin.doctor.facts import Facts, Subject


class Severity(enum.Enum):
    """The severity of a finding; the members are in descending order."""

    ERROR = "error"
    """The job cannot run."""
    WARNING = "warning"
    """The job may fail."""
    UNKNOWN = "unknown"
    """The check could not determine if there is a problem."""
    NOTE = "note"
    """Information only; nothing is wrong."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A problem that a check found."""

    sentence: str
    """The problem, with the name and value of the object; without a full stop."""
    remedy: str
    """The action for the user; a command or settings to paste, if possible."""
    is_unknown: bool = False
    """True if the check could not determine if there is a problem; `sentence` contains the reason."""


Judge: TypeAlias = Callable[[Facts], Iterable[Violation]]
"""A function that yields the violations that the facts show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of the doctor, which tests the collected facts."""

    id: str
    """The identifier of the check. It never changes, because scripts depend on it."""
    level: Severity
    condition: str
    """The condition that holds if the check yields no violation."""
    judge: Judge
    needs: tuple[Subject, ...] = ()
    """The kinds of facts that must have been read; otherwise the check is skipped."""


class CheckList(list[Check]):
    """The checks of a module, in the order of their definition."""

    def add(self, *needs: Subject, level: Severity = Severity.ERROR) -> Callable[[Judge], Judge]:
        """Return a decorator that adds the function ``_check_some_id`` as the check ``some-id``.

        The check is skipped unless all kinds of facts in `needs` have been read. The function's docstring is
        "Check that" and the condition that holds if the function yields no violation (`Check.condition`).
        """

        def append(judge: Judge) -> Judge:
            check_id = judge.__name__.lstrip("_").removeprefix("check_").replace("_", "-")
            condition = str(judge.__doc__).rstrip(".").removeprefix("Check that ")
            condition = condition[:1].upper() + condition[1:]
            self.append(Check(id=check_id, level=level, condition=condition, judge=judge, needs=needs))
            return judge

        return append


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A reported result of a check."""

    id: str
    level: Severity
    sentence: str
    remedy: str
