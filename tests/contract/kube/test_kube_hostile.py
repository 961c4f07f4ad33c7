"""Slow and large requests of one author: the server stays alive and keeps none of them in memory."""

import asyncio
import itertools
import random
import time
from collections import Counter, deque
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path

import grpc
import hostile_requests
import psutil
import pytest
from flyteidl.admin import agent_pb2 as admin
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hostile_requests import send
from kube_server import serve, served
from kube_world import names
from serving import NAMESPACE, build_creation
from tiny_service import wait_until

from backend_plugin.shell.memory_tuning import TRIM_SECONDS

AT_ONCE = 32
LONGEST_PROBE = 1.0
MOST_GROWN = 100 * 2**20
SMALL, MIDDLE, LARGE, LARGEST = 6 * 2**10, 60 * 2**10, 1_000_000, 11 * 2**20
SENDING = (("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1))
# RESOURCE_EXHAUSTED and UNAVAILABLE are temporary: too many bytes are in progress, or the cluster is slow.
EXPECTED = {"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "PERMISSION_DENIED"}


def probe(address):
    """Raise `grpc.RpcError` if the server does not answer, and `AssertionError` if it is not alive."""
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(service="liveness"), timeout=60)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def waiting_times(pid):
    """Return the seconds that each thread of a process has been ready without running."""
    times = {}
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # The thread has ended.
            times[thread.parent.name] = int(thread.read_text().split()[1]) / 1e9
    return times


def longest_wait(before, after):
    """Return the longest time that one thread has waited in between."""
    return max((seconds - before.get(thread, 0.0) for thread, seconds in after.items()), default=0.0)


def measure(address, pid):
    """Return the seconds of one probe over a new connection, without the time of waiting for a processor."""
    processes = (pid, "self")
    before, began = [waiting_times(each) for each in processes], time.perf_counter()
    probe(address)
    seconds = time.perf_counter() - began
    return max(0.0, seconds - sum(map(longest_wait, before, map(waiting_times, processes))))


def measure_until(over, address, pid):
    """Probe once a second, as a kubelet does, until the file exists."""
    durations = []
    while not over.exists():
        durations.append(measure(address, pid))
        time.sleep(1)
    return [*durations, measure(address, pid)]


@contextmanager
def probing(serving):
    """Probe the liveness of a server each second; at the end, the list has the durations.

    The probes are in a process of their own, so that the load of this one does not count.
    """
    durations = []
    over = serving.state.with_name("over")
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        probes = pool.submit(measure_until, over, serving.endpoint, serving.pid)
        try:
            yield durations
        finally:
            over.touch()
            durations += probes.result()


def choose(number, meta):
    """Return requests of all kinds in random order: most are small, and some have the maximum size."""
    shares = (
        ([*hostile_requests.all_kinds(SMALL, meta)], number * 90 // 100),
        ([*hostile_requests.all_kinds(MIDDLE, meta)], number * 9 // 100),
        ([*hostile_requests.large(LARGE)], number * 9 // 1000),
        ([*hostile_requests.large(LARGEST)], number // 1000 + 4),
    )
    chosen = [request for pool, count in shares for request in itertools.islice(itertools.cycle(pool), count)]
    random.Random(number).shuffle(chosen)
    return chosen


def separate(request, number):
    """Return a creation for an execution of its own, so that each one makes a job."""
    method, data = request
    if method != "CreateTask" or len(data) > 2 * MIDDLE:
        return request
    creation = admin.CreateTaskRequest.FromString(data)
    creation.task_execution_metadata.task_execution_id.node_execution_id.execution_id.name = f"f{number}"
    if len(creation.output_prefix) < SMALL // 2:
        creation.output_prefix = f"s3://bucket/f{number}/n0/data/0"
    return method, creation.SerializeToString()


async def attack(address, requests):
    """Send the requests over several connections, and delete what they create; return the status codes."""
    codes = Counter()
    numbered = iter(enumerate(requests))

    async def work():
        async with grpc.aio.insecure_channel(address, options=SENDING) as channel:
            for number, request in numbered:
                code, answer = await send(channel, *separate(request, number))
                codes[f"{request[0]} {code}"] += 1
                if request[0] == "CreateTask" and answer:
                    meta = admin.CreateTaskResponse.FromString(answer).resource_meta
                    delete = admin.DeleteTaskRequest(resource_meta=meta).SerializeToString()
                    await send(channel, "DeleteTask", delete)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return codes


async def reference(address):
    creation = build_creation(execution="first").SerializeToString()
    async with grpc.aio.insecure_channel(address) as channel:
        _, answer = await send(channel, "CreateTask", creation)
    return admin.CreateTaskResponse.FromString(answer).resource_meta


@contextmanager
def attacked(folder):
    """Run a server, and an API server that keeps only its last changes."""
    # No object store answers, and none is looked for outside this machine.
    keys = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "none")
    with served() as api:
        api.objects.namespaces[NAMESPACE] = "Active"
        # Thousands of large jobs would use up the memory of this process.
        api.bodies, api.objects.history = deque(maxlen=1), deque(maxlen=1_000)  # type: ignore[assignment]
        with serve(api, folder, AWS_ENDPOINT_URL="http://127.0.0.1:1", **keys) as serving:
            yield api, serving


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_hostile_requests_neither_stop_the_server_nor_grow_its_memory(tmp_path, request):
    """A share of the long tests sends its share of the requests, because they take minutes."""
    number = 10_000 // int(request.config.getoption("--share").partition("/")[2])
    with attacked(tmp_path) as (api, serving):
        chosen = choose(number, asyncio.run(reference(serving.endpoint)))
        process = psutil.Process(serving.pid)
        before = process.memory_info().rss
        with probing(serving) as durations:
            codes = asyncio.run(attack(serving.endpoint, chosen))
            asyncio.run(wait_until(lambda: not names(api), 60))
        # The server returns free memory to the system at an interval.
        asyncio.run(wait_until(lambda: process.memory_info().rss - before < MOST_GROWN, 2 * TRIM_SECONDS))
        grown = process.memory_info().rss - before
    print(f"{len(durations)} probes, {max(durations)=} s, {grown / 2**20:.0f} MB more", codes)
    assert max(durations) < LONGEST_PROBE
    assert {each.split()[1] for each in codes} <= EXPECTED
