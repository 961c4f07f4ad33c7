"""Formats rows of text as columns."""

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Final

import rich_click as click

from backend_plugin.core import printable

_GAP: Final = "  "
_NARROWEST: Final = 20
_COLOURS: Final[Mapping[str, str]] = {
    "SUCCEEDED": "green",
    "FAILED": "red",
    "RETRYABLE_FAILED": "red",
    "RUNNING": "cyan",
    "WAITING_FOR_RESOURCES": "yellow",
    "Succeeded": "green",
    "Failed": "red",
    "Running": "cyan",
    "not_ready": "red",
    "drained": "yellow",
    "ready": "green",
}


class Columns:
    """A formatter for the rows of a table that is printed row by row.

    A wide cell widens its column for all later rows. The last column is cut at the edge of the terminal.
    """

    def __init__(self, header: Sequence[str]) -> None:
        self._widths = [len(name) for name in header]
        # Output to a file or a pipe is not shortened.
        has_edge = sys.stdout.isatty() or "COLUMNS" in os.environ
        self._edge = shutil.get_terminal_size().columns if has_edge else None

    def fit_rows(self, rows: Iterable[Sequence[str]]) -> None:
        """Widen the columns so that all cells of these rows fit."""
        for row in rows:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]

    def format_row(self, row: Sequence[str]) -> str:
        """Return the row as a line of text, in which a cell with the name of a state is coloured."""
        *first, last = [printable.escape(cell) for cell in row]
        self.fit_rows([[*first, last]])
        cells = [cell.ljust(width) for cell, width in zip(first, self._widths[:-1], strict=True)]
        room = None
        if self._edge is not None:
            room = max(_NARROWEST, self._edge - sum(len(cell) + len(_GAP) for cell in cells))
        return _GAP.join(_colour_cell(cell) for cell in (*cells, shorten(last, room))).rstrip()


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a whole table."""
    columns = Columns(header)
    columns.fit_rows([printable.escape(cell) for cell in row] for row in rows)
    return [columns.format_row(row) for row in (header, *rows)]


def shorten(text: str, room: int | None) -> str:
    """Return the first line of a text, shortened to `room` characters if `room` is given."""
    first = text.partition("\n")[0]
    return first if room is None or len(first) <= room else first[: room - 1].rstrip() + "…"


def is_coloured() -> bool:
    """True if stdout is a terminal and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def get_colour(word: str) -> str | None:
    """Return the name, as in `click.style`, of the colour of a state such as ``RUNNING``.

    Return None for a word that is not a state, or if stdout shows no colours.
    """
    return _COLOURS.get(word) if is_coloured() else None


def _colour_cell(cell: str) -> str:
    colour = get_colour(cell.rstrip())
    return click.style(cell, fg=colour) if colour else cell


def format_verdict(phase: str, cause: str, verdict: Any) -> list[str]:
    """Return the lines that show the phase of a job, with its reason, message and log links.

    `verdict` is a `core.judging.verdict.Verdict` or the message `Verdict` of the job service, which has the
    same fields.
    """
    head = f"{phase} ({verdict.reason}{f', {cause}' if cause else ''})"
    lines = [click.style(head, fg=get_colour(phase), bold=True)]
    lines += [f"  {line}" for line in printable.escape(verdict.message).splitlines()]
    if phase in ("FAILED", "RETRYABLE_FAILED"):
        lines.append(f"  Flyte {'may try again' if verdict.retry else 'does not try again'}")
    return [*lines, *(printable.escape(f"  {link.name}: {link.uri}") for link in verdict.logs)]


def format_age(moment: datetime | None, now: datetime) -> str:
    """Return the age in kubectl's format: 45s, 3m, 2h, 5d."""
    if moment is None:
        return "-"
    seconds = max(0, int((now - moment) / timedelta(seconds=1)))
    for limit, size, unit in ((120, 1, "s"), (7_200, 60, "m"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"


def get_time(message: Any, field: str) -> datetime | None:
    """Return a timestamp field of a message, or None if it is not set."""
    if not message.HasField(field):
        return None
    found: datetime = getattr(message, field).ToDatetime(tzinfo=timezone.utc)
    return found


def format_clock(moment: datetime | None) -> str:
    """Return the time of day in the local time zone as ``HH:MM:SS``; ``-`` for None."""
    return "-" if moment is None else f"{moment.astimezone():%H:%M:%S}"
