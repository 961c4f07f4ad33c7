"""Measure the transfer of a 200 MB tensor from rank 0 to the caller of the task."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import upstream
from benchmarks.comparison import Pair, Row
from benchmarks.measure import HERE, SCRIPTS, Command, Side, measure_in_turn

WHAT = "from rank 0's return to the caller having read "


def measure(repeat: int) -> list[Row]:
    """Measure without flytekit's conversion of outputs, which is the same for both sides."""
    printed: dict[str, list[Any]] = {"ours": [], upstream.NAME: []}
    sides = [
        Side(name="ours", measured=_record_runs(HERE, printed["ours"])),
        Side(name=upstream.NAME, measured=_record_runs(upstream.find_environment(), printed[upstream.NAME])),
    ]
    measure_in_turn(sides, repeat)
    # The first run was the warm-up.
    ours, theirs = (
        {key: dict(enumerate(run[key] for run in runs[1:])) for key in runs[0]} for runs in printed.values()
    )
    large, small = WHAT + "a tensor of 200 MB", WHAT + "one number"
    return [
        Pair(what=large, ours=ours["large"], against=upstream.NAME, theirs=theirs["large"]).build_ratio_row(),
        Pair(
            what=large, ours=ours["large"], against="pickle in one process", theirs=ours["pickled"]
        ).build_ratio_row(),
        Pair(what=small, ours=ours["small"], against=upstream.NAME, theirs=theirs["small"]).build_ratio_row(),
        Row(
            what="the tensor in the caller's memory",
            ours=_format_kind(ours["mapped"]),
            against=upstream.NAME,
            theirs=_format_kind(theirs["mapped"]),
            target="mapped",
            is_reached=all(ours["mapped"].values()),
        ),
    ]


def _record_runs(environment: Path, printed: list[Any]) -> Callable[[], float]:
    command = Command(environment=environment, program="python", arguments=(str(SCRIPTS / "hand_over.py"),))

    def run() -> float:
        printed.append(command.run().printed)
        return float(printed[-1]["large"])

    return run


def _format_kind(mapped: dict[int, bool]) -> str:
    return "mapped" if all(mapped.values()) else "copied"
