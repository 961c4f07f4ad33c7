"""Measure job creation, change latency and the cost of 10,000 jobs with a real API server."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.bench_connector import MEMORY
from benchmarks.comparison import Row, Spread, Target
from benchmarks.measure import SCRIPTS, Command

JOBS: Final = 10_000
TURNS: Final = 8
"""The number of turns in which each client creates jobs, for each round of ``--repeat``."""
RIG: Final = Path(__file__).parents[1] / "tests" / "cluster"
CREATED: Final = Target(text="≥ 0.90", low=0.9, high=float("inf"))
VISIBLE: Final = Target(text="≤ 100 ms", high=100)
READS: Final = Target(text="none", high=0)
READY: Final = Target(text="≤ 15 s", high=15)
LIST: Final = Target(text="≤ 5 s", high=5)
CHANGE: Final = Target(text="≤ 0.10 ms", high=0.1)
_CLIENTS: Final = {"bare": "a bare client (aiohttp)", "official": "the official client (kubernetes.aio)"}
_HOW: Final = {"apart": "the API server on other processors", "shared": "all on the same processors"}


def measure(repeat: int) -> list[Row]:
    """Measure the creation of jobs, then the cost of ten thousand jobs; without Go, measure nothing."""
    if shutil.which("go") is None:
        return [Row.build_single("with a real API server", "not measured: its programs are built with Go")]
    print(f"  jobs created in a real API server, {TURNS * repeat} turns", flush=True)
    created = _run_script("create_rate.py", TURNS * repeat)
    return [
        *(row for how in _HOW for row in _build_create_rows(how, created[how])),
        *(row for kind, memory in MEMORY.items() for row in _measure_scale(kind, memory)),
    ]


def _measure_scale(kind: str, memory: Target) -> Iterator[Row]:
    """Yield the rows for ten thousand jobs of one kind; `memory` is the target for their memory."""
    many = f"{JOBS:,} {kind}s of 4 pods"
    print(f"  a real API server with {many}", flush=True)
    measured = _run_script("cluster_scale.py", JOBS, kind)
    visible, (idle, *full) = measured["visible"], measured["resident"]
    last = visible[int(len(visible) * 0.99)]
    yield from (
        Row.build_single(
            f"from a change in the API server until GetTask returns it, {kind}s, 99th percentile",
            f"{last:.0f} ms (half within {visible[len(visible) // 2]:.0f} ms)",
            VISIBLE,
            last,
        ),
        Row(
            what=f"memory with {many}, of the server that created them and of a new one",
            ours=", ".join(f"{each:.0f} MiB" for each in full),
            against="without jobs",
            theirs=f"{idle:.0f} MiB",
            compared=f"{max(full) - idle:+.0f} MiB",
            target=memory.text,
            is_reached=memory.is_reached(max(full) - idle),
        ),
        Row.build_single(
            f"requests to the API server for {measured['polls']:,} GetTask of {kind}s",
            str(measured["reads"]),
            READS,
            measured["reads"],
        ),
        Row.build_single(
            f"start of a server until it is ready, {many}",
            f"{measured['ready']:.1f} s",
            READY,
            measured["ready"],
        ),
        Row.build_single(
            f"processor time for listing {many}",
            f"{measured['list_processor']:.1f} s",
            LIST,
            measured["list_processor"],
        ),
        *(_build_change_row(kind, how, measured[f"watched {how}"]) for how in ("in bursts", "one at a time")),
    )


def _run_script(script: str, number: int, *kind: str) -> Any:
    """Run a file of `scripts/` with a number and perhaps a kind of jobs; return the JSON that it prints."""
    command = Command(program="python", arguments=(str(SCRIPTS / script), str(number), *kind))
    path = {"PYTHONPATH": os.pathsep.join((str(SCRIPTS), str(RIG)))}
    return command.add_variables(path).run().printed


def _build_create_rows(how: str, rates: dict[str, list[float]]) -> Iterator[Row]:
    ours = rates["ours"]
    each = {"pattern": "{:.0f}", "unit": " a second"}
    for side, client in _CLIENTS.items():
        theirs = rates[side]
        is_target = (how, side) == ("shared", "official")
        ratios = Spread.from_values(one / other for one, other in zip(ours, theirs, strict=True))
        yield Row(
            what=f"jobs created, 16 at a time, {_HOW[how]}",
            ours=Spread.from_values(ours).format(**each),
            against=f"the same POSTs by {client}",
            theirs=Spread.from_values(theirs).format(**each),
            compared=ratios.format(pattern="{:.2f}"),
            # No target: with separate processors the API server limits all clients, and the bare client does
            # not build jobs from tasks.
            target=CREATED.text if is_target else "",
            is_reached=CREATED.is_reached(ratios.median) if is_target else None,
        )
    spent = Spread.from_values(rates["processor"]).format(pattern="{:.1f}", unit=" ms")
    yield Row.build_single(f"processor time of our server per job, {_HOW[how]}", spent)


def _build_change_row(kind: str, how: str, measured: dict[str, float]) -> Row:
    """Return a row for the processor time of a pod change in the whole server."""
    spent = measured["milliseconds"]
    what = f"processor time per change of a pod of a {kind}, {how} ({measured['rate']:,.0f} a second)"
    return Row.build_single(what, f"{spent:.3f} ms", CHANGE, spent)
