"""Measure cost and latency of GetTask with ten thousand live jobs whose phases change."""

import statistics
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.comparison import Row, Spread, Target
from benchmarks.measure import SCRIPTS, Command

JOBS: Final = 10_000
RATE: Final = 500
SECONDS: Final = 5
# By then every job has been queried once, as in a server that has been running for a minute.
WARM: Final = 45
TURNS: Final = 4
"""Turns of each side, for each requested round."""
OURS: Final = f"our server, {JOBS:,} jobs of 4 pods"

P99: Final = Target(text="≤ 5 ms", high=5)
MEMORY: Final = Target(text="≤ 100 MiB more", high=100)
AGAINST: Final = {
    "bare": ("a bare grpc.aio servicer, constant answer", Target(text="≤ 1.15", high=1.15)),
    "flytekit": ("flytekit's service, constant connector", Target(text="< 1", high=1)),
}


def measure(repeat: int) -> list[Row]:
    """Send requests to three servers in turn, from one client in one run."""
    print(f"  {RATE} GetTask a second for {SECONDS} s, {TURNS * repeat} turns a side", flush=True)
    sides = _run(JOBS, TURNS * repeat, "ours", *AGAINST)
    idle = _run(1, 1, "ours")["ours"]["resident"]
    ours = sides["ours"]
    return [
        *(_cost(name, sides) for name in AGAINST),
        Row(
            what=f"GetTask at {RATE} a second, 99th percentile",
            ours=f"{ours['p99']:.1f} ms (half within {ours['p50']:.1f} ms)",
            against=AGAINST["bare"][0],
            theirs=f"{sides['bare']['p99']:.1f} ms",
            target=P99.text,
            is_reached=P99.is_reached(ours["p99"]),
        ),
        Row(
            what=f"memory for {JOBS:,} jobs of 4 pods",
            ours=f"{ours['resident']:.0f} MiB",
            against="with one job",
            theirs=f"{idle:.0f} MiB",
            compared=f"{ours['resident'] - idle:+.0f} MiB",
            target=MEMORY.text,
            is_reached=MEMORY.is_reached(ours["resident"] - idle),
        ),
    ]


def _cost(name: str, sides: Mapping[str, Any]) -> Row:
    what, target = AGAINST[name]
    mine, theirs = sides["ours"]["microseconds"], sides[name]["microseconds"]
    ratios = Spread.of(one / other for one, other in zip(mine, theirs, strict=True))
    return Row(
        what="processor time of the server for one GetTask",
        ours=f"{statistics.median(mine):.0f} µs",
        against=what,
        theirs=f"{statistics.median(theirs):.0f} µs",
        compared=ratios.text(pattern="{:.2f}"),
        target=target.text,
        is_reached=target.is_reached(ratios.median),
    )


def _run(jobs: int, turns: int, *sides: str) -> Mapping[str, Any]:
    numbers = (jobs, RATE, SECONDS, turns, WARM if jobs > 1 else 0)
    script = str(SCRIPTS / "asking.py")
    printed: Mapping[str, Any] = (
        Command(program="python", arguments=(script, *map(str, numbers), *sides)).run().printed
    )
    return printed
