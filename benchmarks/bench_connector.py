"""Measure cost and latency of GetTask with ten thousand live jobs whose phases change."""

import statistics
from collections.abc import Iterator, Mapping
from typing import Any, Final

from benchmarks.comparison import Row, Spread, Target
from benchmarks.measure import SCRIPTS, Command

JOBS: Final = 10_000
RATE: Final = 500
SECONDS: Final = 5
# By then the server has checked every job once, as after a minute of normal operation.
WARM: Final = 45
TURNS: Final = 4
"""The number of turns of each side, for each round of ``--repeat``."""

P99: Final = Target(text="≤ 5 ms", high=5)
MEMORY: Final = {
    "PyTorchJob": Target(text="≤ 100 MiB more", high=100),
    "TrainJob": Target(text="≤ 120 MiB more", high=120),
}
"""The target for the memory of `JOBS` jobs, by their kind."""
AGAINST: Final = {
    "bare": ("a bare grpc.aio servicer, constant answer", Target(text="≤ 1.15", high=1.15)),
    "flytekit": ("flytekit's service, constant connector", Target(text="< 1", high=1)),
}


def measure(repeat: int) -> list[Row]:
    """Send requests to three servers in turn, from one client in one run, for each kind of jobs."""
    return [row for kind, target in MEMORY.items() for row in _measure_kind(kind, target, repeat)]


def _measure_kind(kind: str, memory: Target, repeat: int) -> Iterator[Row]:
    print(f"  {RATE} GetTask a second for {SECONDS} s, {TURNS * repeat} turns a side, {kind}s", flush=True)
    sides = _run(kind, JOBS, TURNS * repeat, "ours", *AGAINST)
    idle = _run(kind, 1, 1, "ours")["ours"]["resident"]
    ours = sides["ours"]
    yield from (
        *(_build_cost_row(kind, name, sides) for name in AGAINST),
        Row(
            what=f"GetTask of {kind}s at {RATE} a second, 99th percentile",
            ours=f"{ours['p99']:.1f} ms (half within {ours['p50']:.1f} ms)",
            against=AGAINST["bare"][0],
            theirs=f"{sides['bare']['p99']:.1f} ms",
            target=P99.text,
            is_reached=P99.is_reached(ours["p99"]),
        ),
        Row(
            what=f"memory for {JOBS:,} {kind}s of 4 pods",
            ours=f"{ours['resident']:.0f} MiB",
            against="with one job",
            theirs=f"{idle:.0f} MiB",
            compared=f"{ours['resident'] - idle:+.0f} MiB",
            target=memory.text,
            is_reached=memory.is_reached(ours["resident"] - idle),
        ),
    )


def _build_cost_row(kind: str, name: str, sides: Mapping[str, Any]) -> Row:
    what, target = AGAINST[name]
    mine, theirs = sides["ours"]["microseconds"], sides[name]["microseconds"]
    ratios = Spread.from_values(one / other for one, other in zip(mine, theirs, strict=True))
    return Row(
        what=f"processor time of the server for one GetTask of a {kind}",
        ours=f"{statistics.median(mine):.0f} µs",
        against=what,
        theirs=f"{statistics.median(theirs):.0f} µs",
        compared=ratios.format(pattern="{:.2f}"),
        target=target.text,
        is_reached=target.is_reached(ratios.median),
    )


def _run(kind: str, jobs: int, turns: int, *sides: str) -> Mapping[str, Any]:
    numbers = (jobs, RATE, SECONDS, turns, WARM if jobs > 1 else 0)
    script = str(SCRIPTS / "get_task_load.py")
    printed: Mapping[str, Any] = (
        Command(program="python", arguments=(script, kind, *map(str, numbers), *sides)).run().printed
    )
    return printed
