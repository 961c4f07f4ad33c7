"""The client uses the clock of the cluster if it differs from the local clock."""

import logging
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest

from backend_plugin.kube.clock import Clock

OURS = datetime(2026, 1, 1, 12, 0, 0, 400_000, tzinfo=timezone.utc)


def date(ahead: timedelta) -> str:
    return format_datetime(OURS + ahead, usegmt=True)


@pytest.mark.parametrize("minutes", [-10, 10])
def test_clock_difference_of_minutes_is_applied(caplog: pytest.LogCaptureFixture, minutes: int) -> None:
    clock, ahead = Clock(lambda: OURS), timedelta(minutes=minutes)
    with caplog.at_level(logging.WARNING):
        clock.update(date(ahead - timedelta(seconds=1)))
        clock.update(date(ahead))
    assert abs(clock.get_current_time() - (OURS + ahead)) <= timedelta(seconds=1)
    assert len(caplog.messages) == 1
    assert ("behind" if minutes < 0 else "ahead of") in caplog.messages[0]


def test_clock_difference_of_a_second_and_an_invalid_header_are_ignored() -> None:
    clock = Clock(lambda: OURS)
    for header in ("", "yesterday", "Thu, 01 Jan 2026 12:10:00 -0000"):
        clock.update(header)
        assert clock.get_current_time() == OURS
    clock.update(date(timedelta(minutes=10)))
    for seconds in (-1, 0, 1):
        clock.update(date(timedelta(seconds=seconds)))
        assert clock.get_current_time() == OURS
