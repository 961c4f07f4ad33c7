"""Measure the import of the plugin: at most 0.05 s more than flytekit, without torch and kubernetes."""

from functools import partial
from pathlib import Path

from benchmarks import upstream
from benchmarks.comparison import Pair, Row, Target
from benchmarks.measure import HERE, Command, Side, in_turn

TARGET = Target(text="≤ +0.05 s", high=0.05)
# The difference is a fiftieth of the measured time, and single runs vary by a tenth of that time.
AT_LEAST = 45

HEAVY = ("kubernetes", "torch")
SAY = f"; import json, sys; print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
PLUGIN = "import flytekit; import flytekitplugins.kfpytorch"


def measure(repeat: int) -> list[Row]:
    """Measure whole processes.

    Bare flytekit runs in upstream's environment, which has the same packages, because in ours flytekit
    would load our entry point.
    """
    bare, ours = _python(upstream.environment(), "import flytekit"), _python(HERE, PLUGIN)
    theirs = _python(upstream.environment(), PLUGIN)
    loaded, loaded_by_theirs = ours.run().printed, theirs.run().printed
    sides = [
        Side(name="flytekit", measured=partial(bare.seconds, [])),
        Side(name="ours", measured=partial(ours.seconds, loaded)),
        Side(name=upstream.NAME, measured=partial(theirs.seconds, loaded_by_theirs), every=9),
    ]
    took = in_turn(sides, max(repeat, AT_LEAST))
    return [
        Pair(
            what="import of the plugin", ours=took["ours"], against="bare flytekit", theirs=took["flytekit"]
        ).difference(TARGET),
        Pair(
            what="import of the plugin", ours=took["ours"], against=upstream.NAME, theirs=took[upstream.NAME]
        ).difference(),
        Row(
            what=f"which of {' and '.join(HEAVY)} the import loads",
            ours=_listed(loaded),
            against=upstream.NAME,
            theirs=_listed(loaded_by_theirs),
            target="neither",
            is_reached=not loaded,
        ),
    ]


def _python(environment: Path, code: str) -> Command:
    return Command(environment=environment, program="python", arguments=("-c", code + SAY))


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "neither"
