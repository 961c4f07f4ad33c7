"""Measure the import of the core and the command `kfpytorch render`."""

from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.comparison import Pair, Row, Target
from benchmarks.measure import Command, Samples, Side, measure_in_turn

IMPORT: Final = Target(text="≤ +0.25 s", high=0.25)
RENDER: Final = Target(text="≤ +0.50 s", high=0.50)
# Single runs vary by a tenth of their time, so the median needs many runs.
AT_LEAST: Final = 15

MESSAGES: Final = (
    "from flyteidl.core import tasks_pb2; "
    "from flyteidl.plugins import pytorch_pb2; from flyteidl.plugins.kubeflow import pytorch_pb2"
)
CORE: Final = f"{MESSAGES}; import backend_plugin.core.pipeline"
FILE: Final = Path(__file__).parents[1] / "examples/02_digits_replicas.py"
LOAD: Final = (
    f"import importlib, sys; sys.path.insert(0, {str(FILE.parent)!r}); importlib.import_module({FILE.stem!r})"
)
PRINT: Final = "from backend_plugin.cli import main; main()"
DONE: Final = "import atexit; atexit.register(print, 'true'); "


def measure(repeat: int) -> list[Row]:
    rounds = max(repeat, AT_LEAST)
    messages, core = _in_turn(_build_command(MESSAGES), _build_command(CORE), rounds)
    loaded, rendered = _in_turn(
        _build_command(LOAD), _build_command(PRINT, "render", str(FILE), "train"), rounds
    )
    return [
        Pair(
            what="import of the core", ours=core, against="flyteidl's messages", theirs=messages
        ).build_difference_row(IMPORT),
        Pair(
            what="kfpytorch render FILE TASK", ours=rendered, against="import of FILE", theirs=loaded
        ).build_difference_row(RENDER),
    ]


def _build_command(code: str, *arguments: str) -> Command:
    return Command(program="python", arguments=("-c", DONE + code, *arguments))


def _in_turn(less: Command, more: Command, rounds: int) -> tuple[Samples, Samples]:
    sides = [
        Side(name=name, measured=partial(command.time_run, result=True))
        for name, command in (("less", less), ("more", more))
    ]
    took = measure_in_turn(sides, rounds)
    return took["less"], took["more"]
