"""Tests of columns and ages."""

from datetime import datetime, timedelta, timezone

import pytest

from backend_plugin.cli import tables
from backend_plugin.cli.inspect_commands import get_colour

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((-5, "0s"), (0.9, "0s"), (119, "119s"), (120, "2m"), (7_199, "119m")),
        *((7_200, "2h"), (172_799, "47h"), (172_800, "2d")),
    ],
)
def test_age_is_formatted_like_kubectl(seconds: float, text: str) -> None:
    assert tables.format_age(NOW - timedelta(seconds=seconds), NOW) == text
    assert (tables.format_age(None, NOW), tables.format_clock(None)) == ("-", "-")


def test_table_columns_align_and_fit_the_terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a", "x" * 30), ("longer", "two\nlines")]
    monkeypatch.delenv("COLUMNS", raising=False)
    assert tables.format_table(("NAME", "SAID"), rows) == [
        "NAME    SAID",
        f"a       {'x' * 30}",
        "longer  two",
    ]
    monkeypatch.setenv("COLUMNS", "32")
    assert tables.format_table(("NAME", "SAID"), rows)[1] == f"a       {'x' * 23}…"


def test_columns_widen_for_later_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    columns = tables.Columns(("NAME", "SAID"))
    assert columns.format_row(("NAME", "SAID")) == "NAME  SAID"
    assert columns.format_row(("a-long-name", "x")) == "a-long-name  x"
    assert columns.format_row(("b", "y")) == "b            y"


def test_neighbouring_replicas_have_different_colours() -> None:
    first = [get_colour(replica) for replica in ("master-0", "worker-0", "worker-1", "worker-2", "worker-3")]
    assert len(set(first)) == 5
    assert get_colour("worker-1") == first[2]
