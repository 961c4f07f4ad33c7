"""What was measured, as rows of a table: both sides, their ratio pair by pair, the target."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.measure import Samples

COLUMNS = ("what", "ours", "against", "", "ours / theirs", "target", "reached")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The middle of several measurements, and how far they lie apart."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Of at least one value."""
        known = list(values)
        return cls(low=min(known), median=statistics.median(known), high=max(known))

    def text(self, *, pattern: str = "{:.2f}", unit: str = "") -> str:
        """``2.51 s (2.40 to 2.80)``."""
        low, median, high = (pattern.format(value) for value in (self.low, self.median, self.high))
        return f"{median}{unit} ({low} to {high})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A figure that we promise: between `low` and `high`."""

    text: str
    high: float
    low: float = float("-inf")

    def is_reached(self, value: float) -> bool:
        """Whether the value, as precise as it is shown, keeps the promise."""
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the table."""

    what: str
    ours: str
    against: str
    theirs: str
    compared: str = ""
    target: str = ""
    is_reached: bool | None = None
    """None where nothing was promised."""

    @classmethod
    def alone(cls, what: str, ours: str, target: Target | None = None, reached: float = 0) -> "Row":
        """A figure that is compared with its target only, or with nothing."""
        return cls(
            what=what,
            ours=ours,
            against="",
            theirs="",
            target=target.text if target else "",
            is_reached=target.is_reached(reached) if target else None,
        )

    def cells(self) -> tuple[str, ...]:
        """The line in the order of `COLUMNS`."""
        reached = {None: "", True: "yes", False: "**no**"}[self.is_reached]
        return (self.what, self.ours, self.against, self.theirs, self.compared, self.target, reached)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Our samples and another side's."""

    what: str
    ours: Samples
    against: str
    theirs: Samples
    is_short: bool = False
    """Told in milliseconds."""

    def ratio(self, target: Target | None = None) -> Row:
        """How many times their time ours is: the median over the rounds in which both were measured."""
        values = [
            self.ours[number] / self.theirs[number]
            for number in sorted(self.ours.keys() & self.theirs.keys())
        ]
        return self._row(Spread.of(values), Spread.of(values).text(), target)

    def difference(self, target: Target | None = None) -> Row:
        """By how many seconds ours is longer."""
        values = [
            self.ours[number] - self.theirs[number]
            for number in sorted(self.ours.keys() & self.theirs.keys())
        ]
        return self._row(Spread.of(values), Spread.of(values).text(pattern="{:+.3f}", unit=" s"), target)

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
        return Spread.of(factor * value for value in samples.values()).text(unit=unit)


def markdown(rows: Iterable[Row]) -> str:
    """The rows as a table."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
