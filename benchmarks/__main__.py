"""Measure the figures that README and docs promise: ``python -m benchmarks [--repeat N] [--only NAME]``.

Without ``--only``, the results replace the generated parts of RESULTS.md.
"""

import argparse
import datetime
import os
import platform
import sys
from collections.abc import Iterable, Sequence
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
    results_page,
    upstream,
)
from benchmarks.comparison import Row

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


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure what README and docs promise."
    )
    parser.add_argument("--repeat", type=int, default=5, help="rounds for each figure (default: %(default)s)")
    parser.add_argument("--only", choices=FIGURES, help="one figure; printed, and the file left as it is")
    options = parser.parse_args(arguments)
    if options.repeat < 1:
        parser.error(f"--repeat {options.repeat}: at least 1")
    page = RESULTS.read_text(encoding="utf-8")
    results_page.check_parts(page, FIGURES)
    results = _measure([options.only] if options.only else [*FIGURES], options.repeat, arguments)
    if options.only:
        print(results.format(results.rows), results.machine, sep="\n\n")
        return
    page = results_page.fill_parts(page, results)
    RESULTS.write_text(page, encoding="utf-8")
    print(page)


def _measure(figures: Iterable[str], repeat: int, arguments: Sequence[str]) -> results_page.Results:
    load, rows = os.getloadavg()[0], dict[str, Sequence[Row]]()
    for name in figures:
        print(name, flush=True)
        rows[name] = FIGURES[name](repeat)
    command = " ".join(["python -m benchmarks", *arguments])
    date = datetime.datetime.now(datetime.timezone.utc).date()
    rounds = f"{repeat} round{'s' if repeat > 1 else ''}"
    return results_page.Results(
        machine=_describe_machine(),
        run=f"`{command}`, {date}, {rounds}, load {load:.1f} before the first run.",
        rows=rows,
    )


def _describe_machine() -> str:
    versions = [f"{name} {metadata.version(name)}" for name in ("torch", "flytekit")]
    pinned = next(line for line in upstream.PINNED.read_text().splitlines() if "==" in line).split()[0]
    gibibytes = psutil.virtual_memory().total / 2**30
    return (
        f"Machine: {os.cpu_count()} cores, {gibibytes:.0f} GiB of memory, {platform.system()} "
        f"{platform.machine()}.\nPython {platform.python_version()}, {', '.join(versions)}; "
        f"the published plugin is {pinned.replace('==', ' ')}."
    )


if __name__ == "__main__":
    main(sys.argv[1:])
