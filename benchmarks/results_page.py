"""The page of results: hand-written text with generated parts.

A part is between the comments ``<!-- generated: NAMES -->`` and ``<!-- end -->``. NAMES are the names of
figures, separated by commas, or `MACHINE`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.comparison import Row, format_markdown

MACHINE: Final = "machine"
_PART: Final = re.compile(r"(<!-- generated: (\S+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of a run."""

    machine: str
    """The description of the machine."""
    run: str
    """The command, its date, the number of rounds and the load before the first run."""
    rows: Mapping[str, Sequence[Row]]
    """The rows of each figure."""

    def format(self, figures: Iterable[str]) -> str:
        """Return the description of the run and the table of `figures`, in Markdown."""
        return f"{self.run}\n\n{format_markdown(row for name in figures for row in self.rows[name])}"


def check_parts(page: str, figures: Iterable[str]) -> None:
    """Check that the parts of a page contain `MACHINE` and each of `figures` once.

    Raises:
        ValueError: If a name is missing, unknown or repeated.
    """
    found = [name for part in _PART.finditer(page) for name in part[2].split(",")]
    needed = [MACHINE, *figures]
    if sorted(found) != sorted(needed):
        raise ValueError(
            f"the generated parts contain {', '.join(found) or 'nothing'}: write each of {', '.join(needed)} "
            "once, as in <!-- generated: core,start --> and <!-- end -->"
        )


def fill_parts(page: str, results: Results) -> str:
    """Return the page with `results` in its parts, and with the other text unchanged."""

    def fill(part: re.Match[str]) -> str:
        names = part[2].split(",")
        text = results.machine if names == [MACHINE] else results.format(names)
        return f"{part[1]}\n{text}\n\n"

    return _PART.sub(fill, page)
