"""Time an all-reduce of several processes, from start to exit, under torchrun and `pyflyte run`."""

from collections.abc import Collection
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from benchmarks import upstream
from benchmarks.comparison import Pair, Row, Target
from benchmarks.measure import HERE, SCRIPTS, Command, Side, measure_in_turn

PLACES: Final = MappingProxyType(
    {"inside": "torch imported in the function", "on_top": "torch imported at the top"}
)


def compare(
    ranks: int,
    repeat: int,
    target: Target,
    *,
    upstream_every: int = 1,
    upstream_places: Collection[str] = PLACES,
) -> list[Row]:
    """Return rows that compare this plugin with torchrun and upstream's plugin, for each key of `PLACES`.

    Under torchrun the script does not import flytekit, and the position of its torch import makes no
    difference.

    Args:
        ranks: The number of processes.
        repeat: The number of rounds.
        target: The target for the ratio of our time to that of torchrun.
        upstream_every: Upstream's plugin takes part in every nth round.
        upstream_places: The keys of `PLACES` for which upstream's plugin is measured.
    """
    result = sum(range(ranks))
    sides = [Side(name="torchrun", measured=partial(_build_torchrun(ranks).time_run, result))]
    for place in PLACES:
        ours = _build_pyflyte(HERE, place, ranks)
        sides.append(Side(name=f"ours, {place}", measured=partial(ours.time_run, result)))
    for place in upstream_places:
        theirs, name = _build_pyflyte(upstream.find_environment(), place, ranks), f"{upstream.NAME}, {place}"
        sides.append(Side(name=name, measured=partial(theirs.time_run, result), every=upstream_every))
    took = measure_in_turn(sides, repeat)
    rows = []
    for place, place_name in PLACES.items():
        what, ours_took = f"all-reduce of {ranks} processes, {place_name}", took[f"ours, {place}"]
        against = Pair(what=what, ours=ours_took, against="torchrun", theirs=took["torchrun"])
        rows.append(against.build_ratio_row(target))
        if place in upstream_places:
            theirs_took = took[f"{upstream.NAME}, {place}"]
            against = Pair(what=what, ours=ours_took, against=upstream.NAME, theirs=theirs_took)
            rows.append(against.build_ratio_row())
    return rows


def _build_torchrun(ranks: int) -> Command:
    arguments = ("--standalone", f"--nproc-per-node={ranks}", str(SCRIPTS / "all_reduce_inside.py"))
    return Command(program="torchrun", arguments=arguments)


def _build_pyflyte(environment: Path, place: str, ranks: int) -> Command:
    return Command(
        environment=environment,
        program="pyflyte",
        arguments=("run", str(SCRIPTS / f"all_reduce_{place}.py"), "run"),
        # On a machine with little memory, this plugin would start fewer ranks by default.
        variables={"RANKS": str(ranks), "FLYTE_KFPYTORCH_LOCAL": str(ranks)},
    )
