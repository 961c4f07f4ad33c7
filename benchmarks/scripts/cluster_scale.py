"""Our server before a real API server with ten thousand jobs of four pods each.

``python benchmarks/scripts/cluster_scale.py JOBS TURNS``, with ``tests/cluster`` on PYTHONPATH: the last line
is JSON.
"""

import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
from flyteidl.core.execution_pb2 import TaskExecution
from rig import backend, operator
from rig.api import jobs
from rig.backend import Backend
from rig.control_plane import ADMIN, BACKEND, ControlPlane, Options

from backend_plugin.core.manifest import names
from benchmarks.scripts import training_cluster
from benchmarks.scripts.etcd_copies import Etcd
from benchmarks.scripts.training_cluster import Bare, Caller, Copies, Official, Work, at_once

CREATES: Final = 200
VISIBLE: Final = 300
CHANGES: Final = 4_000
POLLS: Final = 4_000
SETTLED: Final = 5.0
ROUND: Final = 30.0
"""In which a server looks at every job once: what it does by itself."""
# As long as the names of the copies, which have their numbers in them.
RUNNING, CREATED = "f0000000", "g0000000"
_READS: Final = re.compile(r'apiserver_request_total\{.*verb="(?:GET|LIST)".*\} (\S+)')
_KINDS: Final = re.compile(r'resource="(?:pods|pytorchjobs|events|podtemplates)"')


class Scale:
    """The stages, one after the other; each adds its figures to `said`."""

    def __init__(self, plane: ControlPlane, folder: Path, total: int, turns: int) -> None:
        self.plane, self.folder, self.total, self.turns = plane, folder, total, turns
        self.work, self.etcd = Work(folder), Etcd(plane.etcd_port)
        self.copies, self.said = dict[str, Copies](), dict[str, Any]()

    async def run(self) -> None:
        """All stages."""
        # Creates as the same user, who is not above the API server's limits; states as who may write them.
        bare, writer = Bare(self.plane, BACKEND), Bare(self.plane, ADMIN)
        official = Official(self.plane, BACKEND, self.work.namespace)
        with self.server("first") as (process, caller):
            at_start = processor(process)
            await asyncio.sleep(SETTLED)
            idle = resident(process)
            await self.create_rate(caller, bare, official)
            await official.close()
            await self.fill(caller)
            await asyncio.sleep(SETTLED)
            self.said["resident"] = [idle, resident(process)]
            await self.visible(caller, writer)
            await self.polled(caller)
            await self.watched(process, writer)
            await caller.close()
        began = time.perf_counter()
        with self.server("second") as (process, caller):
            self.said["ready"] = time.perf_counter() - began
            self.said["list_processor"] = processor(process) - at_start
            assert await caller.phase(self.work.reference(f"f{self.total - 1:07}")) == TaskExecution.RUNNING
            await asyncio.sleep(SETTLED)
            self.said["resident"].append(resident(process))
            await caller.close()
        await bare.close()
        await writer.close()

    @contextmanager
    def server(self, name: str) -> Iterator[tuple[psutil.Process, Caller]]:
        """A server of ours that is ready, and who asks it."""
        (self.folder / name).mkdir()
        with Backend(self.plane, self.folder / name) as server:
            yield psutil.Process(server.process.pid), Caller(server.endpoint, self.work)

    async def create_rate(self, caller: Caller, bare: Bare, official: Official) -> None:
        """Jobs a second: by CreateTask, and by nothing but the same POSTs."""
        rates: dict[str, list[float]] = {"ours": [], "bare": [], "official": []}
        path = jobs(self.work.namespace)
        for turn in range(self.turns + 1):
            first, *requests = [self.work.request(f"c{turn:03}{number:04}") for number in range(CREATES)]
            await caller.create(first)
            made = self.plane.admin.get(jobs(self.work.namespace, self.name(f"c{turn:03}0000")))
            bodies = {
                side: [bare_body(made, f"{side}-{turn:03}{number:04}") for number in range(1, CREATES)]
                for side in ("bare", "official")
            }
            asked = {
                "ours": [partial(caller.create, each) for each in requests],
                "bare": [partial(bare.post, path, each) for each in bodies["bare"]],
                "official": [partial(official.post, each) for each in bodies["official"]],
            }
            for side, calls in asked.items():
                rate = len(calls) / await at_once(calls)
                if turn:  # The first one does not count.
                    rates[side].append(rate)
        self.said["created"] = rates

    def name(self, execution: str) -> str:
        """Of its job."""
        return names.job_name(self.work.run(execution))

    async def fill(self, caller: Caller) -> None:
        """Two patterns with their pods, made as always; the rest are their copies."""
        for pattern, running, total in ((RUNNING, True, self.total), (CREATED, False, VISIBLE)):
            await caller.create(self.work.request(pattern))
            path = jobs(self.work.namespace, self.name(pattern))
            training_cluster.play(self.plane, path, running=running)
            self.copies[pattern] = Copies(self.etcd, self.work, pattern)
            self.copies[pattern].make(range(1, total))
        last = self.work.reference(f"g{VISIBLE - 1:07}")
        while await caller.phase(last) != TaskExecution.INITIALIZING:
            await asyncio.sleep(0.1)

    async def visible(self, caller: Caller, writer: Bare) -> None:
        """Milliseconds from when a change is written until GetTask tells it."""
        late = []
        for number in range(1, VISIBLE):
            execution = f"g{number:07}"
            reference = self.work.reference(execution)
            path = jobs(self.work.namespace, self.name(execution))
            for replica in ("master-0", "worker-0", "worker-1", "worker-2"):
                await self.change(writer, execution, replica)
            await asyncio.sleep(0.1)
            began = time.perf_counter()
            await writer.patch(f"{path}/status", {"status": training_cluster.job_status(running=True)})
            written = time.perf_counter()
            while await caller.phase(reference) != TaskExecution.RUNNING:
                assert time.perf_counter() - began < 30, f"{execution} is not RUNNING"
                await asyncio.sleep(0.001)
            late.append(1_000 * (time.perf_counter() - written))
        self.said["visible"] = sorted(late)

    async def watched(self, process: psutil.Process, writer: Bare) -> None:
        """Milliseconds of a processor for each change of a pod, and how many changes a second there were."""
        await asyncio.sleep(ROUND)  # What was written before is yet to be judged.
        before = processor(process)
        await asyncio.sleep(ROUND)
        idle = (processor(process) - before) / ROUND
        numbers = range(1, min(CHANGES, self.total))
        alone = [partial(self.change, writer, f"f{number:07}") for number in numbers]
        moves = asyncio.to_thread(self.copies[RUNNING].move_masters, numbers)
        for name, change in (("alone", at_once(alone)), ("in numbers", moves)):
            before, began = processor(process), time.perf_counter()
            await change
            seconds = time.perf_counter() - began
            await asyncio.sleep(SETTLED)  # What was written last is yet to be seen.
            spent = processor(process) - before - idle * (seconds + SETTLED)
            self.said[f"watched {name}"] = {
                "milliseconds": 1_000 * spent / len(numbers),
                "rate": len(numbers) / seconds,
            }

    async def change(self, writer: Bare, execution: str, replica: str = "master-0") -> None:
        """Its pod runs, since now."""
        path = f"/api/v1/namespaces/{self.work.namespace}/pods/{self.name(execution)}-{replica}/status"
        await writer.patch(path, {"status": training_cluster.pod_status(running=True)})

    async def polled(self, caller: Caller) -> None:
        """Reads that the API server answered while jobs were asked for; a watch is none."""
        references = [self.work.reference(f"f{number:07}") for number in range(1, min(POLLS, self.total))]
        before = self.reads()
        await at_once([partial(caller.phase, each) for each in references])
        self.said |= {"polls": len(references), "reads": self.reads() - before}

    def reads(self) -> int:
        """GETs and lists that the API server has answered, of the kinds that we look at."""
        told = self.plane.admin.ask("GET", "/metrics").text
        lines = [line for line in told.splitlines() if 'resource="' in line]
        of_ours = [
            line for line in lines if re.search(r'resource="(pods|pytorchjobs|events|podtemplates)', line)
        ]
        return sum(int(float(match[1])) for line in of_ours if (match := _READS.match(line)))


def bare_body(made: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    """A job as it was sent, under another name."""
    assert made is not None
    meta = {key: made["metadata"][key] for key in ("labels", "annotations")}
    return {
        "apiVersion": made["apiVersion"],
        "kind": made["kind"],
        "metadata": {**meta, "name": name},
        "spec": made["spec"],
    }


def processor(process: psutil.Process) -> float:
    """Seconds of a processor since its start."""
    times = process.cpu_times()
    return float(times.user + times.system)


def resident(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 2**20)


def main(total: int, turns: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with ControlPlane(folder, Options(controllers=False)) as plane:
            plane.crds(operator.crds())
            backend.permit(plane)
            scale = Scale(plane, folder, total, turns)
            plane.namespace(scale.work.namespace)
            asyncio.run(scale.run())
    print(json.dumps(scale.said))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
