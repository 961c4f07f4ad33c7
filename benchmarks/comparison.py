"""Rows for the table of results: the samples of both sides, their ratio and the target."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.measure import Samples

COLUMNS = ("what", "ours", "against", "", "ours / theirs", "target", "reached")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median and the range of several measurements."""

    low: float
    median: float
    high: float

    @classmethod
    def from_values(cls, values: Iterable[float]) -> "Spread":
        """Return the spread of at least one value."""
        known = list(values)
        return cls(low=min(known), median=statistics.median(known), high=max(known))

    def format(self, *, pattern: str = "{:.2f}", unit: str = "") -> str:
        """Return the median and the range as text, such as ``2.51 s (2.40 to 2.80)``."""
        low, median, high = (pattern.format(value) for value in (self.low, self.median, self.high))
        return f"{median}{unit} ({low} to {high})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target for a figure: a value between `low` and `high`."""

    text: str
    high: float
    low: float = float("-inf")

    def is_reached(self, value: float) -> bool:
        """True if the value reaches the target."""
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table."""

    what: str
    ours: str
    against: str
    theirs: str
    compared: str = ""
    target: str = ""
    is_reached: bool | None = None
    """None without a target."""

    @classmethod
    def build_single(cls, what: str, ours: str, target: Target | None = None, reached: float = 0) -> "Row":
        """Return a row for a figure that is compared only with a target, or not at all.

        `ours` is the text of the figure, and `reached` the number that is compared with the target.
        """
        return cls(
            what=what,
            ours=ours,
            against="",
            theirs="",
            target=target.text if target else "",
            is_reached=target.is_reached(reached) if target else None,
        )

    def list_cells(self) -> tuple[str, ...]:
        """Return the cells in the order of `COLUMNS`."""
        reached = {None: "", True: "yes", False: "**no**"}[self.is_reached]
        return (self.what, self.ours, self.against, self.theirs, self.compared, self.target, reached)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The samples of this project and of another side."""

    what: str
    ours: Samples
    against: str
    theirs: Samples
    is_short: bool = False
    """True to show milliseconds instead of seconds."""

    def build_ratio_row(self, target: Target | None = None) -> Row:
        """Return a row with the ratio of our time to theirs, over the rounds in which both were measured."""
        values = [
            self.ours[number] / self.theirs[number]
            for number in sorted(self.ours.keys() & self.theirs.keys())
        ]
        return self._row(Spread.from_values(values), Spread.from_values(values).format(), target)

    def build_difference_row(self, target: Target | None = None) -> Row:
        """Return a row with the difference of our time and theirs, in seconds."""
        values = [
            self.ours[number] - self.theirs[number]
            for number in sorted(self.ours.keys() & self.theirs.keys())
        ]
        return self._row(
            Spread.from_values(values),
            Spread.from_values(values).format(pattern="{:+.3f}", unit=" s"),
            target,
        )

    def _row(self, spread: Spread, compared: str, target: Target | None) -> Row:
        return Row(
            what=self.what,
            ours=self._time(self.ours),
            against=self.against,
            theirs=self._time(self.theirs),
            compared=compared,
            target=target.text if target else "",
            is_reached=target.is_reached(spread.median) if target else None,
        )

    def _time(self, samples: Samples) -> str:
        factor, unit = (1e3, " ms") if self.is_short else (1, " s")
        return Spread.from_values(factor * value for value in samples.values()).format(unit=unit)


def format_markdown(rows: Iterable[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(row.list_cells() for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
