"""The time in the cluster, derived from the `Date` header of API responses."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Final

log: Final = logging.getLogger(__name__)

_ROUNDING_ERROR: Final = timedelta(seconds=0.5)
"""The mean error of a `Date` header, which has whole seconds."""
_TOLERANCE: Final = timedelta(seconds=2)
"""The largest difference that rounding and network latency can cause. Smaller ones are ignored."""
_LOGGED_DIFFERENCE: Final = timedelta(seconds=30)
"""A larger difference between the cluster's clock and the local clock is logged once."""


def get_local_time() -> datetime:
    """Return the current time by the clock of this machine, in UTC."""
    return datetime.now(timezone.utc)


class Clock:
    """The clock of one cluster, for comparisons with the timestamps of its objects.

    Until the first API response, it equals the local clock, which may differ from the cluster by minutes.
    """

    def __init__(self, get_time: Callable[[], datetime] = get_local_time) -> None:
        self._get_local_time = get_time
        self._ahead = timedelta(0)
        self._is_logged = False
        self._date = ""
        """The `Date` header of the last response."""

    def get_current_time(self) -> datetime:
        """Return the current time in the cluster."""
        return self._get_local_time() + self._ahead

    def update(self, date: str) -> None:
        """Update the clock from the `Date` header of a response that has just arrived."""
        if date == self._date:
            return
        self._date = date
        try:
            at = parsedate_to_datetime(date)
        except ValueError:
            return
        if at.tzinfo is None:  # ``-0000`` states no time zone.
            return
        ahead = at + _ROUNDING_ERROR - self._get_local_time()
        self._ahead = ahead if abs(ahead) > _TOLERANCE else timedelta(0)
        self._log_difference(ahead)

    def _log_difference(self, ahead: timedelta) -> None:
        if abs(ahead) > _LOGGED_DIFFERENCE and not self._is_logged:
            self._is_logged = True
            log.warning(
                "the clock of the cluster is %.0f s %s the local clock; "
                "the timestamps of the cluster are compared with its own clock",
                abs(ahead.total_seconds()),
                "ahead of" if ahead > timedelta(0) else "behind",
            )
