"""Measure jobs created per second, by CreateTask and by the same POSTs of other clients.

``python benchmarks/scripts/create_rate.py TURNS``, with ``tests/cluster`` on PYTHONPATH; the last line is
JSON. It contains the rates of each side with a real API server on half of the processors and on all of them,
and the processor milliseconds of our server for one job.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from rig.api import jobs
from rig.control_plane import BACKEND, ControlPlane

from benchmarks.scripts import processors
from benchmarks.scripts.training_cluster import (
    Bare,
    Official,
    Work,
    read_processor_seconds,
    run_api_server,
    run_concurrently,
    run_server,
)

CREATES: Final = 200
SETTLED: Final = 5.0


async def measure_rates(
    plane: ControlPlane, folder: Path, work: Work, turns: int
) -> Mapping[str, list[float]]:
    """Return jobs per second of our server, `Bare` and `Official`, in turn and as the same user.

    The item `processor` has the processor milliseconds of our server for one job.
    """
    plane.namespace(work.namespace)
    path = jobs(work.namespace)
    bare, official = Bare(plane, BACKEND), Official(plane, BACKEND, work.namespace)
    found: dict[str, list[float]] = {"ours": [], "bare": [], "official": [], "processor": []}
    with run_server(plane, folder / "server", work) as (process, caller):
        await asyncio.sleep(SETTLED)
        for turn in range(turns + 1):
            first, *requests = [work.build_request(f"c{turn:03}{number:04}") for number in range(CREATES)]
            await caller.create(first)
            made = plane.admin.get(jobs(work.namespace, work.build_job_name(f"c{turn:03}0000")))
            bodies = {
                side: [build_bare_body(made, f"{side}-{turn:03}{number:04}") for number in range(1, CREATES)]
                for side in ("bare", "official")
            }
            asked = {
                "ours": [partial(caller.create, each) for each in requests],
                "bare": [partial(bare.post, path, each) for each in bodies["bare"]],
                "official": [partial(official.post, each) for each in bodies["official"]],
            }
            for side, calls in asked.items():
                before = read_processor_seconds(process)
                rate = len(calls) / await run_concurrently(calls)
                spent = 1_000 * (read_processor_seconds(process) - before) / len(calls)
                if turn:  # The first turn is the warm-up.
                    found[side].append(rate)
                    found["processor"] += [spent] if side == "ours" else []
        for client in (caller, bare, official):
            await client.close()
    return found


def build_bare_body(made: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    """Return the manifest of the created job `made`, with another name, for a new POST."""
    assert made is not None
    meta = {key: made["metadata"][key] for key in ("labels", "annotations")}
    return {
        "apiVersion": made["apiVersion"],
        "kind": made["kind"],
        "metadata": {**meta, "name": name},
        "spec": made["spec"],
    }


def main(turns: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        work, results = Work(Path(place)), {}
        for name, split in (
            ("apart", processors.split_processors()),
            ("shared", processors.share_processors()),
        ):
            folder = Path(place, name)
            with run_api_server(folder, split.of_server) as plane, processors.run_on(split.of_clients):
                results[name] = asyncio.run(measure_rates(plane, folder, work, turns))
    print(json.dumps(results))


if __name__ == "__main__":
    main(int(sys.argv[1]))
