"""Rows of text as columns, for people."""

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
    "lost": "red",
    "drained": "yellow",
    "ready": "green",
}


class Columns:
    """Rows below each other; columns become wider, never narrower. The last ends with the terminal."""

    def __init__(self, header: Sequence[str]) -> None:
        self._header = header
        self._widths = [len(name) for name in header]
        self._edge = shutil.get_terminal_size().columns if _has_edge() else None

    def header(self) -> str:
        """The names of the columns."""
        return self._row(self._header, plainly=True)

    def fit(self, rows: Iterable[Sequence[str]]) -> None:
        """Make room for rows."""
        for row in rows:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]

    def row(self, row: Sequence[str]) -> str:
        """A row, with words that say how it stands in their colours."""
        safe = [printable.escape(cell) for cell in row]
        self.fit([safe])
        return self._row(safe, plainly=False)

    def _row(self, row: Sequence[str], *, plainly: bool) -> str:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], self._widths[:-1], strict=True)]
        room = None
        if self._edge is not None:
            room = max(_NARROWEST, self._edge - sum(len(cell) + len(_GAP) for cell in cells))
        cells.append(shortened(row[-1], room))
        if not plainly:
            cells = [_coloured(cell) for cell in cells]
        return _GAP.join(cells).rstrip()


def _has_edge() -> bool:
    """Whoever reads a file or a pipe wants all of it, unless he has said how wide it is to be."""
    return sys.stdout.isatty() or "COLUMNS" in os.environ


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a whole table."""
    columns = Columns(header)
    columns.fit([printable.escape(cell) for cell in row] for row in rows)
    return [columns.header(), *(columns.row(row) for row in rows)]


def shortened(text: str, room: int | None) -> str:
    """The first line, in so much room."""
    first = text.partition("\n")[0]
    return first if room is None or len(first) <= room else first[: room - 1].rstrip() + "…"


def coloured() -> bool:
    """Whether whoever reads is a person who likes colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def colour_of(word: str) -> str | None:
    """The colour of a word that says how something stands."""
    return _COLOURS.get(word)


def _coloured(cell: str) -> str:
    colour = colour_of(cell.rstrip()) if coloured() else None
    return click.style(cell, fg=colour) if colour else cell


def age(moment: datetime | None, now: datetime) -> str:
    """How long ago, as kubectl says it: 45s, 3m, 2h, 5d."""
    if moment is None:
        return "-"
    seconds = max(0, int((now - moment) / timedelta(seconds=1)))
    for limit, size, unit in ((120, 1, "s"), (7_200, 60, "m"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"


def moment_of(message: Any, field: str) -> datetime | None:
    """A time that a message may have."""
    if not message.HasField(field):
        return None
    found: datetime = getattr(message, field).ToDatetime(tzinfo=timezone.utc)
    return found


def clock(moment: datetime | None) -> str:
    """The time of day, here."""
    return "-" if moment is None else f"{moment.astimezone():%H:%M:%S}"
