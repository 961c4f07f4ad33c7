"""Measure the connector with a real API server and many jobs of four pods each.

``python benchmarks/scripts/cluster_scale.py JOBS [KIND]``, with ``tests/cluster`` on PYTHONPATH; the last
line is JSON. KIND is ``PyTorchJob``, the default, or ``TrainJob``.
The API server and etcd run on half of the processors, and everything else on the others.
"""

import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
from flyteidl.core.execution_pb2 import TaskExecution
from rig.control_plane import ADMIN, ControlPlane

from benchmarks.scripts import processors, training_cluster
from benchmarks.scripts.etcd_copies import Etcd
from benchmarks.scripts.job_kinds import DEFAULT, KINDS, JobKind
from benchmarks.scripts.training_cluster import (
    Bare,
    Caller,
    Copies,
    Work,
    read_processor_seconds,
    run_api_server,
    run_concurrently,
    run_server,
)

VISIBLE: Final = 300
CHANGES: Final = 4_000
POLLS: Final = 4_000
SETTLED: Final = 5.0
ROUND: Final = 30.0
"""The interval in which a server checks every job once, without a request."""
# The execution names of the two pattern jobs. A copy has a name of the same length: the letter and a number.
RUNNING, CREATED = "f0000000", "g0000000"
_READS: Final = re.compile(r'apiserver_request_total\{.*verb="(?:GET|LIST)".*\} (\S+)')
_OURS: Final = re.compile(r'resource="(?:pods|pytorchjobs|trainjobs|trainingruntimes|events|podtemplates)"')


class Scale:
    """The stages of the measurement; each adds its figures to `results`."""

    def __init__(self, plane: ControlPlane, work: Work, folder: Path, total: int) -> None:
        self.plane, self.folder, self.total = plane, folder, total
        self.work, self.etcd = work, Etcd(plane.etcd_port)
        self.copies, self.results = dict[str, Copies](), dict[str, Any]()

    async def run(self) -> None:
        """Run all stages."""
        writer = Bare(self.plane, ADMIN)
        with self.server("first") as (process, caller):
            at_start = read_processor_seconds(process)
            await asyncio.sleep(SETTLED)
            idle = read_resident_memory(process)
            await self.fill(caller)
            await asyncio.sleep(SETTLED)
            self.results["resident"] = [idle, read_resident_memory(process)]
            await self.measure_delay(caller, writer)
            await self.measure_polls(caller)
            await caller.close()
        began = time.perf_counter()
        with self.server("second") as (process, caller):
            self.results["ready"] = time.perf_counter() - began
            self.results["list_processor"] = read_processor_seconds(process) - at_start
            assert (
                await caller.phase(self.work.build_reference(f"f{self.total - 1:07}"))
                == TaskExecution.RUNNING
            )
            await asyncio.sleep(SETTLED)
            self.results["resident"].append(read_resident_memory(process))
            await self.measure_changes(process, writer)
            await caller.close()
        await writer.close()

    def server(self, name: str) -> AbstractContextManager[tuple[psutil.Process, Caller]]:
        """Return a context that runs our server; `name` is the name of its folder."""
        return run_server(self.plane, self.folder / name, self.work)

    async def fill(self, caller: Caller) -> None:
        """Create a running and a starting job with pods in the API server, and copies of both in etcd."""
        for pattern, running, total in ((RUNNING, True, self.total), (CREATED, False, VISIBLE)):
            await caller.create(self.work.build_request(pattern))
            training_cluster.play(self.plane, self.work, pattern, running=running)
            self.copies[pattern] = Copies(self.etcd, self.work, pattern)
            self.copies[pattern].make(range(1, total))
        last = self.work.build_reference(f"g{VISIBLE - 1:07}")
        while await caller.phase(last) != TaskExecution.INITIALIZING:
            await asyncio.sleep(0.1)

    async def measure_delay(self, caller: Caller, writer: Bare) -> None:
        """Measure the milliseconds from a written change until GetTask reports it."""
        late = []
        for number in range(1, VISIBLE):
            execution = f"g{number:07}"
            reference = self.work.build_reference(execution)
            *before, last = self.list_changes(writer, execution)
            for change in before:
                await change()
            await asyncio.sleep(0.1)
            began = time.perf_counter()
            await last()
            written = time.perf_counter()
            while await caller.phase(reference) != TaskExecution.RUNNING:
                assert time.perf_counter() - began < 30, f"{execution} is not RUNNING"
                await asyncio.sleep(0.001)
            late.append(1_000 * (time.perf_counter() - written))
        self.results["visible"] = sorted(late)

    async def measure_changes(self, process: psutil.Process, writer: Bare) -> None:
        """Measure the processor milliseconds for a change of a pod, and the number of changes per second."""
        await asyncio.sleep(ROUND)  # Wait until the server has processed the earlier changes.
        before = read_processor_seconds(process)
        await asyncio.sleep(ROUND)
        idle = (read_processor_seconds(process) - before) / ROUND
        numbers = range(1, min(CHANGES, self.total))
        alone = [partial(self.change, writer, f"f{number:07}") for number in numbers]
        moves = asyncio.to_thread(self.copies[RUNNING].move_masters, numbers)
        for name, change in (("one at a time", run_concurrently(alone)), ("in bursts", moves)):
            before, began = read_processor_seconds(process), time.perf_counter()
            await change
            seconds = time.perf_counter() - began
            await asyncio.sleep(SETTLED)  # Wait until the last changes have been received.
            spent = read_processor_seconds(process) - before - idle * (seconds + SETTLED)
            self.results[f"watched {name}"] = {
                "milliseconds": 1_000 * spent / len(numbers),
                "rate": len(numbers) / seconds,
            }

    def list_changes(self, writer: Bare, execution: str) -> list[Callable[[], Awaitable[None]]]:
        """Return functions that write changes to a job and its pods; after the last one, the job runs."""
        kind = self.work.kind
        pods = [partial(self.change, writer, execution, replica) for replica in kind.replicas]
        status = {"status": training_cluster.build_job_status(kind, running=True)}
        # A TrainJob runs when its pods run; Trainer does not report this. A PyTorchJob has a condition.
        job = [partial(writer.patch, f"{self.work.build_path(execution)}/status", status)]
        return [*pods, *job] if kind.has_conditions else [*job, *pods]

    async def change(self, writer: Bare, execution: str, replica: tuple[str, int] | None = None) -> None:
        """Set the pod of a replica, by default the first one, to running since now."""
        kind = self.work.kind
        name = kind.build_pod_name(self.work.build_job_name(execution), *(replica or kind.replicas[0]))
        path = f"/api/v1/namespaces/{self.work.namespace}/pods/{name}/status"
        await writer.patch(path, {"status": training_cluster.build_pod_status(kind, running=True)})

    async def measure_polls(self, caller: Caller) -> None:
        """Count the API server's read requests, without watches, during GetTask requests to our server."""
        references = [
            self.work.build_reference(f"f{number:07}") for number in range(1, min(POLLS, self.total))
        ]
        before = self.count_reads()
        await run_concurrently([partial(caller.phase, each) for each in references])
        self.results |= {"polls": len(references), "reads": self.count_reads() - before}

    def count_reads(self) -> int:
        """Return how many GET and LIST requests the API server has received for the kinds that we read."""
        text = self.plane.admin.request("GET", "/metrics").text
        of_ours = [line for line in text.splitlines() if _OURS.search(line)]
        return sum(int(float(match[1])) for line in of_ours if (match := _READS.match(line)))


def read_resident_memory(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 2**20)


def main(total: int, kind: JobKind) -> None:
    split = processors.split_processors()
    with tempfile.TemporaryDirectory() as place, run_api_server(Path(place), split.of_server) as plane:
        scale = Scale(plane, Work(Path(place), kind), Path(place), total)
        plane.namespace(scale.work.namespace)
        with processors.run_on(split.of_clients):
            asyncio.run(scale.run())
    print(json.dumps(scale.results))


if __name__ == "__main__":
    main(int(sys.argv[1]), KINDS[sys.argv[2] if len(sys.argv) > 2 else DEFAULT.name])
