"""What time it is in the cluster: its times are judged by the clock that wrote them.

Lives here: how far that clock is from ours, as every answer says in passing. Does not: what is judged.
Ours may be minutes away from it, and a job that was made just now would seem to have waited for as long.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Final

log: Final = logging.getLogger(__name__)

_HALF: Final = timedelta(seconds=0.5)
"""``Date`` leaves out the fraction."""
_BORNE: Final = timedelta(seconds=2)
"""What the fraction and the way here may amount to: within it the clocks agree."""
_TOLD: Final = timedelta(seconds=30)
"""From there on a person should know."""


def ours() -> datetime:
    """This machine's time."""
    return datetime.now(timezone.utc)


class Clock:
    """Of one cluster; ours until it has answered."""

    def __init__(self, ours: Callable[[], datetime] = ours) -> None:
        self._ours = ours
        self._ahead = timedelta(0)
        self._told = False
        self._date = ""
        """As it was heard last."""

    def now(self) -> datetime:
        """The cluster's time."""
        return self._ours() + self._ahead

    def heard(self, date: str) -> None:
        """An answer was begun at this moment, as its ``Date`` says; within a second all say the same."""
        if date == self._date:
            return
        self._date = date
        try:
            at = parsedate_to_datetime(date)
        except ValueError:
            return
        if at.tzinfo is None:  # ``-0000``: of no known zone.
            return
        ahead = at + _HALF - self._ours()
        self._ahead = ahead if abs(ahead) > _BORNE else timedelta(0)
        if abs(ahead) > _TOLD and not self._told:
            self._told = True
            log.warning(
                "the cluster's clock is %.0f s %s ours; its times are judged by its own",
                abs(ahead.total_seconds()),
                "ahead of" if ahead > timedelta(0) else "behind",
            )
        elif abs(ahead) <= _BORNE:
            self._told = False
