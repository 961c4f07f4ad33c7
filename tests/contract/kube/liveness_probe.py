"""Probes the liveness of a server once a second over a new connection, as a kubelet does; prints the seconds.

It is a process of its own, so that the load of a test process does not count. The time in which a thread of
the server or of this process is ready and waits for a processor does not count either.
"""

import contextlib
import sys
import time
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


def probe(address: str) -> None:
    """Raise `grpc.RpcError` if the server does not answer, and `AssertionError` if it is not alive."""
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(service="liveness"), timeout=60)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def waiting_times(pid: int | str) -> dict[str, float]:
    """Return the seconds that each thread of a process has been ready without running."""
    times = {}
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # The thread has ended.
            times[thread.parent.name] = int(thread.read_text().split()[1]) / 1e9
    return times


def longest_wait(before: dict[str, float], after: dict[str, float]) -> float:
    """Return the longest time that one thread has waited in between."""
    return max((seconds - before.get(thread, 0.0) for thread, seconds in after.items()), default=0.0)


def measure(address: str, pid: int) -> tuple[float, float]:
    """Return the duration of one probe, with and without the time of waiting for a processor."""
    processes = (pid, "self")
    before, began = [waiting_times(each) for each in processes], time.perf_counter()
    probe(address)
    seconds = time.perf_counter() - began
    waited = sum(map(longest_wait, before, map(waiting_times, processes)))
    return seconds, max(0.0, seconds - waited)


def main(address: str, pid: int) -> None:
    """Probe until the test process ends, which breaks the pipe."""
    while True:
        seconds, net = measure(address, pid)
        print(f"{seconds:.3f} {net:.3f}", flush=True)
        time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
