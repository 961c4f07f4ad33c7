"""Which gang scheduler a platform has: the section ``kfpytorch.gang`` of the settings.

Lives here: what it says, and what it cannot mean. Does not: how its values are read; see `settings.reading`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.protojson import shown
from backend_plugin.core.scheduling.adapter import QUEUE, SCHEDULER_NAME, TIMEOUT, Adapter
from backend_plugin.core.scheduling.table import ADAPTERS, REFUSED, Table
from kfpytorch_common import labels

NONE: Final = "none"
OPERATOR: Final = "operator"
"""The style in which the operator makes the group, of every job that there is."""
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ganging:
    """What a platform says of gangs."""

    scheduler: str = NONE
    style: str = ""
    """Who makes its groups, where there are two ways: ``operator`` or ``plugin``."""
    scheduler_name: str = ""
    """What pods call it; empty: as its own documentation does."""
    queue: str = ""
    """Of jobs whose author names none."""
    timeout: timedelta = timedelta(0)
    """How long those that have found a place wait for the others; zero: as long as the scheduler says."""
    adapters: Table | None = None
    """In place of those that there are."""

    @property
    def adapter(self) -> Adapter | None:
        """How the scheduler is told of a gang; None without one."""
        return self.styles.get(self.style)

    @property
    def styles(self) -> dict[str, Adapter]:
        """The ways in which the scheduler can be used."""
        return {**(self.adapters or ADAPTERS).get(self.scheduler, {})}


def problems(said: Ganging) -> Iterator[Problem]:
    """What the section cannot mean."""
    if said.scheduler == NONE:
        yield from _not_understood(said, frozenset(), "without a scheduler")
        if said.style:
            yield _problem("style", said.style, "means nothing without a scheduler", "name the scheduler")
    elif not said.styles:
        known = ", ".join([NONE, *(said.adapters or ADAPTERS)])
        why = REFUSED.get(said.scheduler, "is no gang scheduler that this backend knows")
        yield _problem("scheduler", said.scheduler, why, f"write one of {known}")
    elif said.adapter is None:
        yield _of_style(said)
    else:
        yield from _not_understood(said, said.adapter.understands, f"to {said.scheduler}")
        yield from _no_values(said)


def _of_style(said: Ganging) -> Problem:
    if "" in said.styles:
        return _problem("style", said.style, f"means nothing to {said.scheduler}", "leave it out")
    message = f"does not say who makes the groups of {said.scheduler}"
    remedy = (
        "write operator if the training-operator runs with --gang-scheduler-name, and plugin if it does not"
    )
    return _problem("style", said.style, message, remedy)


def _not_understood(said: Ganging, understands: frozenset[str], whom: str) -> Iterator[Problem]:
    values = {QUEUE: said.queue, TIMEOUT: said.timeout, SCHEDULER_NAME: said.scheduler_name}
    for key, value in values.items():
        if value and key not in understands:
            yield _problem(key, str(value), f"means nothing {whom}", "leave it out")


def _no_values(said: Ganging) -> Iterator[Problem]:
    if not labels.is_value(said.queue):
        yield _problem(QUEUE, said.queue, "is not the name of a queue", f"write {labels.VALUE}")
    if said.scheduler_name and not labels.is_subdomain(said.scheduler_name):
        remedy = f"write {labels.SUBDOMAIN}"
        yield _problem(SCHEDULER_NAME, said.scheduler_name, "is not the name of a scheduler", remedy)
    if said.timeout % _SECOND:
        yield _problem(TIMEOUT, str(said.timeout), "is no whole number of seconds", "write 30s, 5m or 1h")


def _problem(key: str, value: str, message: str, remedy: str) -> Problem:
    return Problem(field=f"kfpytorch.gang.{key}", value=shown(value), message=message, remedy=remedy)
