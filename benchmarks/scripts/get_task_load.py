"""Send GetTask requests to servers in turn at a steady rate, and measure cost and latency.

``python benchmarks/scripts/get_task_load.py KIND JOBS RATE SECONDS TURNS WARM SIDE...`` prints JSON last.
KIND, JOBS and SIDE are arguments of get_task_server.py. In each of the TURNS turns, each server receives RATE
requests per second for SECONDS. The servers run for WARM seconds before the first request.
"""

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from flyteidl.admin import agent_pb2 as admin

from benchmarks.scripts.get_task_server import METHOD, build_reference
from benchmarks.scripts.job_kinds import KINDS, JobKind

SERVER = Path(__file__).with_name("get_task_server.py")


@dataclass(frozen=True, kw_only=True)
class Load:
    """The arguments RATE, SECONDS, TURNS and WARM of the command line."""

    rate: int
    seconds: float
    turns: int
    warm: float


class Side:
    """A server process of get_task_server.py, and the measurements of its turns."""

    def __init__(self, name: str, jobs: int, kind: JobKind) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, str(SERVER), name, str(jobs), kind.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.microseconds: list[float] = []
        self.latencies: list[float] = []
        self.resident = 0.0

    def read_processor_seconds(self) -> float:
        """Return the processor seconds of the server since its start, and store its memory in `resident`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        seconds, self.resident = json.loads(self.process.stdout.readline())
        return float(seconds)

    async def send_turn(self, requests: list[bytes], load: Load) -> None:
        """Send requests for one turn, and record their cost."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            ask = channel.unary_unary(f"/{METHOD}/GetTask", bytes, admin.GetTaskResponse.FromString)
            await ask(requests[0])
            before = self.read_processor_seconds()
            calls = await self._send_requests(ask, requests, load)
            self.microseconds.append((self.read_processor_seconds() - before) / calls * 1e6)

    async def _send_requests(self, ask: Any, requests: list[bytes], load: Load) -> int:
        began = time.perf_counter()
        pending = set()
        calls = int(load.rate * load.seconds)
        for number in range(calls):
            await asyncio.sleep(max(0.0, began + number / load.rate - time.perf_counter()))
            task = asyncio.ensure_future(self._send_request(ask, requests[(number * 31) % len(requests)]))
            pending.add(task)
            task.add_done_callback(pending.discard)
        await asyncio.gather(*pending)
        return calls

    async def _send_request(self, ask: Any, request: bytes) -> None:
        began = time.perf_counter()
        await ask(request)
        self.latencies.append(time.perf_counter() - began)

    def build_result(self) -> dict[str, Any]:
        """Return all measurements."""
        ordered = sorted(self.latencies)
        return {
            "microseconds": self.microseconds,
            "p50": ordered[len(ordered) // 2] * 1e3,
            "p99": ordered[int(len(ordered) * 0.99)] * 1e3,
            "resident": self.resident,
        }


async def main(kind: JobKind, jobs: int, load: Load, names: list[str]) -> None:
    sides = [Side(name, jobs, kind) for name in names]
    requests = [
        admin.GetTaskRequest(
            task_type="pytorch",
            resource_meta=build_reference(number, kind),
            task_category=admin.TaskCategory(name="pytorch", version=1),
            output_prefix="s3://bucket",
        ).SerializeToString()
        for number in range(jobs)
    ]
    try:
        await asyncio.sleep(load.warm)
        for turn in range(load.turns + 1):
            for side in sides:
                await side.send_turn(requests, load)
                if turn == 0:  # The warm-up.
                    side.microseconds.clear()
                    side.latencies.clear()
    finally:
        for side in sides:
            side.process.stdin.close()  # type: ignore[union-attr]
            side.process.wait()
    print(json.dumps({side.name: side.build_result() for side in sides}))


if __name__ == "__main__":
    chosen, arguments = KINDS[sys.argv[1]], sys.argv[1:]
    load = Load(
        rate=int(arguments[2]), seconds=float(arguments[3]), turns=int(arguments[4]), warm=float(arguments[5])
    )
    asyncio.run(main(chosen, int(arguments[1]), load, arguments[6:]))
