"""Measure the figures that README and docs promise: ``python -m benchmarks [--repeat N] [--only NAME]``."""

import argparse
import datetime
import os
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Final

import psutil

from benchmarks import (
    bench_cluster,
    bench_connector,
    bench_core,
    bench_ddp_step,
    bench_eight_processes,
    bench_hand_over,
    bench_import,
    bench_serve,
    bench_start,
    bench_two_processes,
    upstream,
)
from benchmarks.comparison import Row, format_markdown

RESULTS: Final = Path(__file__).with_name("RESULTS.md")
FIGURES: Final = MappingProxyType(
    {
        "two_processes": bench_two_processes.measure,
        "eight_processes": bench_eight_processes.measure,
        "import": bench_import.measure,
        "ddp_step": bench_ddp_step.measure,
        "hand_over": bench_hand_over.measure,
        "core": bench_core.measure,
        "start": bench_start.measure,
        "connector": bench_connector.measure,
        "serve": bench_serve.measure,
        "cluster": bench_cluster.measure,
    }
)

PAGE: Final = """# Measurements

Output of `{command}` on {date}. The two sides of a row run alternately, in new processes, {repeat} times
each after a warm-up run (imports at least {imports} times; the published plugin fewer times where it is
slow). For the DDP steps both sides run at the same time and take {turns} turns of half a second each. Times
are medians, with the minimum and the maximum in brackets. Ratios and differences are computed for each round;
the table has their median. Each rank has one thread (`OMP_NUM_THREADS=1`).

{machine}

{table}
"""


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure what README and docs promise."
    )
    parser.add_argument("--repeat", type=int, default=5, help="rounds for each figure (default: %(default)s)")
    parser.add_argument("--only", choices=FIGURES, help="one figure; printed, and the file left as it is")
    options = parser.parse_args(arguments)
    if options.repeat < 1:
        parser.error(f"--repeat {options.repeat}: at least 1")
    machine, rows = _machine(), list[Row]()
    for name in [options.only] if options.only else FIGURES:
        print(name, flush=True)
        rows += FIGURES[name](options.repeat)
    page = PAGE.format(
        command=" ".join(["python -m benchmarks", *arguments]),
        date=datetime.datetime.now(datetime.timezone.utc).date(),
        repeat=options.repeat,
        imports=bench_import.AT_LEAST,
        turns=bench_ddp_step.TURNS * options.repeat,
        machine=machine,
        table=format_markdown(rows),
    )
    if not options.only:
        RESULTS.write_text(page, encoding="utf-8")
    print(page)


def _machine() -> str:
    """Describe cores, memory, load and versions, before the benchmark itself causes load."""
    versions = [f"{name} {metadata.version(name)}" for name in ("torch", "flytekit")]
    pinned = next(line for line in upstream.PINNED.read_text().splitlines() if "==" in line).split()[0]
    gibibytes = psutil.virtual_memory().total / 2**30
    return (
        f"Machine: {os.cpu_count()} cores, {gibibytes:.0f} GiB of memory, {platform.system()} "
        f"{platform.machine()}, load {os.getloadavg()[0]:.1f} before the first run. "
        f"Python {platform.python_version()}, {', '.join(versions)}; upstream's plugin: {pinned}."
    )


if __name__ == "__main__":
    main(sys.argv[1:])
