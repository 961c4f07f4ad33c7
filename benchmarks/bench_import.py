"""Measure the import of the plugin: at most 0.05 s more than flytekit, without torch and kubernetes."""

from functools import partial
from pathlib import Path

from benchmarks import upstream
from benchmarks.comparison import Pair, Row, Target
from benchmarks.measure import HERE, Command, Side, measure_in_turn

TARGET = Target(text="≤ +0.05 s", high=0.05)
# Single runs vary by a tenth of their time, which is more than the target, so the median needs many runs.
AT_LEAST = 45

HEAVY = ("kubernetes", "torch")
SAY = f"; import json, sys; print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
PLUGIN = "import flytekit; import flytekitplugins.kfpytorch"


def measure(repeat: int) -> list[Row]:
    """Measure whole processes.

    Bare flytekit runs in upstream's environment, which has the same packages, because in ours flytekit
    would load our entry point.
    """
    bare, ours = _build_command(upstream.find_environment(), "import flytekit"), _build_command(HERE, PLUGIN)
    theirs = _build_command(upstream.find_environment(), PLUGIN)
    loaded, loaded_by_theirs = ours.run().printed, theirs.run().printed
    sides = [
        Side(name="flytekit", measured=partial(bare.time_run, [])),
        Side(name="ours", measured=partial(ours.time_run, loaded)),
        Side(name=upstream.NAME, measured=partial(theirs.time_run, loaded_by_theirs), every=9),
    ]
    took = measure_in_turn(sides, max(repeat, AT_LEAST))
    return [
        Pair(
            what="import of the plugin", ours=took["ours"], against="bare flytekit", theirs=took["flytekit"]
        ).build_difference_row(TARGET),
        Pair(
            what="import of the plugin", ours=took["ours"], against=upstream.NAME, theirs=took[upstream.NAME]
        ).build_difference_row(),
        Row(
            what=f"which of {' and '.join(HEAVY)} the import loads",
            ours=_format_names(loaded),
            against=upstream.NAME,
            theirs=_format_names(loaded_by_theirs),
            target="neither",
            is_reached=not loaded,
        ),
    ]


def _build_command(environment: Path, code: str) -> Command:
    return Command(environment=environment, program="python", arguments=("-c", code + SAY))


def _format_names(names: list[str]) -> str:
    return ", ".join(names) or "neither"
