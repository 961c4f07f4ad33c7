"""Mutated requests are answered or rejected with a reason and leave no state; large ones delay no others.

All mutations derive from the random generator, so that a failure can be reproduced.
"""

import asyncio
import gc
import itertools
import logging
import struct
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

import grpc
import hostile_requests
import psutil
import pytest
from dice import Dice, pod_templates
from flyteidl.admin import agent_pb2 as admin
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.core.tasks_pb2 import TaskTemplate
from generated_tasks import template
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from kubernetes_messages import BYTES, VARINT, varint
from kubernetes_messages import field as encode_field
from scripted_cluster import ScriptedCluster
from serving import ASYNC, Served, build_creation, ready_server
from tiny_service import wait_until

from backend_plugin.shell.reconciler import REMEMBERED
from kfpytorch_idl.v1 import job_ref_pb2

TEXTS = (
    *("", "a\nb\r\0c", "../../../../etc/passwd", "file:///etc/passwd", "file://host/etc/passwd"),
    *("simplecache::s3://bucket/x", "http://169.254.169.254/latest/meta-data", "s3://bucket/../other"),
    *("s3://user:secret@bucket/prefix", "kube-system", "UPPER.case_under", "{{ .input }}"),
    *("\u202e\ufeff\U0001f600", "9" * 400, "x" * 64),
)
HUGE = "y" * 100_000
INTEGERS = (0, 1, -1, 127, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63))
DOUBLES = (0.0, -1.0, 0.5, 1e308, 1e-320, float("inf"), float("-inf"), float("nan"), 2.0**53 + 2)
DEPTH = 25  # The depth that protobuf still parses; `bottomless` exceeds it.
FIXED64 = 1  # The wire type of a double.


def _field(number, content):
    return encode_field(number, BYTES, content)


def flipped(message, dice):
    data = bytearray(message.SerializeToString())
    for _ in range(dice.choice((1, 1, 2, 8, 64))):
        if data:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return bytes(data)


def spliced(message, dice):
    """Cut the message at a random place, and append a random part of it."""
    data = message.SerializeToString()
    begin, end = sorted(dice.randrange(len(data) + 1) for _ in range(2))
    return data[: dice.randrange(len(data) + 1)] + data[begin:end]


def noise(message, dice):
    return dice.randbytes(dice.choice((0, 1, 10, 1000, 100_000)))


def bottomless(message, dice):
    """Add a deeply nested list to the `custom` field of the template."""
    value = _field(3, b"deep")
    for _ in range(dice.choice((90, 1_000))):
        value = _field(6, _field(1, value))
    template, custom = 2, 5
    entry = _field(1, b"masterReplicas") + _field(2, value)
    return message.SerializeToString() + _field(template, _field(custom, _field(1, entry)))


def changed(message, dice):
    """Drop one to five random fields at any depth, or add fields with random values."""
    copy = type(message)()
    copy.CopyFrom(message)
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        owner = dice.choice([*_list_messages(copy)])
        fields = owner.ListFields()
        if fields and dice.random() < 0.25:
            owner.ClearField(dice.choice(fields)[0].name)
        else:
            # A parser merges the bytes of a field into its value, or adds them to a list or a map.
            owner.MergeFromString(_build_field(owner.DESCRIPTOR, dice) * dice.choice((1, 1, 1, 2, 100)))
    return bytes(copy.SerializeToString())


MUTATIONS = (*[changed] * 4, flipped, spliced, noise, bottomless)


def mutated(message, dice):
    return dice.choice(MUTATIONS)(message, dice)


def _list_messages(message):
    """Yield the message and its parts at any depth."""
    yield message
    for kind, value in message.ListFields():
        parts = value if kind.is_repeated else (value,)
        for each in parts.values() if isinstance(parts, Mapping) else parts:
            if isinstance(each, Message):
                yield from _list_messages(each)


def _build_field(kind, dice, depth=DEPTH):
    """Return a random field of a message in its encoded form; no bytes for a message without fields."""
    if not kind.fields or not depth:
        return b""
    chosen = dice.choice(kind.fields)
    if chosen.message_type is not None:
        return _field(chosen.number, _build_field(chosen.message_type, dice, depth - 1))
    match chosen.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = HUGE if dice.random() < 0.02 else dice.choice(TEXTS)
            return _field(chosen.number, text.encode())
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return encode_field(chosen.number, FIXED64, struct.pack("<d", dice.choice(DOUBLES)))
    return encode_field(chosen.number, VARINT, varint(dice.choice(INTEGERS)))


AT_ONCE = 32
# The allocator keeps the memory of the first round.
MOST_GROWN = 30 * 2**20
OK, INVALID = grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT
TOO_MUCH = grpc.StatusCode.RESOURCE_EXHAUSTED  # The message exceeds gRPC's own limit.
DENIED = grpc.StatusCode.PERMISSION_DENIED  # The reference has an invalid signature.
OVER = grpc.StatusCode.FAILED_PRECONDITION  # A mutated prefix may equal that of the next attempt.


@dataclass
class Sender:
    served: Served
    dice: Dice
    came_to: Counter[str] = field(default_factory=Counter)
    executions: Iterator[int] = field(default_factory=itertools.count)

    def request(self):
        """Return a request that propeller could send, for a new execution."""
        execution, attempt = f"f{next(self.executions)}", self.dice.randrange(3)
        prefix = self.served.prefix(attempt, execution)
        task = ParseDict(template(self.dice), TaskTemplate())
        return build_creation(attempt, execution, task=task, output_prefix=prefix)

    async def send(self, method, data):
        """Return the response, or None for an expected rejection; fail the test on any other status."""
        call = self.served.channel.unary_unary(ASYNC + method)(data, timeout=60)
        code = await call.code()
        self.came_to[f"{method} {code.name}"] += 1
        expected = (OK, INVALID, TOO_MUCH, OVER if method == "CreateTask" else DENIED)
        assert code in expected, (method, await call.details(), data)
        assert code is OK or await call.details(), (method, data)
        return await call if code is OK else None

    async def live(self):
        """Run the life of a task with a mutated CreateTask request, and send mutated references to it."""
        answer = await self.send("CreateTask", mutated(self.request(), self.dice))
        if answer is None:
            return
        meta = admin.CreateTaskResponse.FromString(answer).resource_meta
        resource = await self.get(meta)
        phase = TaskExecution.Phase.Name(resource.phase)
        self.came_to[phase] += 1
        assert phase != "UNDEFINED"  # A mutated prefix may equal that of another task, which may have ended.
        assert resource.message
        await self.send("GetTask", self.forged(_get(meta)))
        await self.send("DeleteTask", self.forged(_delete(meta)))
        assert await self.send("DeleteTask", _delete(meta).SerializeToString()) == b""

    async def get(self, meta):
        answer = await self.send("GetTask", _get(meta).SerializeToString())
        assert answer is not None
        return admin.GetTaskResponse.FromString(answer).resource

    def forged(self, request):
        if self.dice.random() < 0.5:
            return mutated(request, self.dice)
        ref = job_ref_pb2.JobRef.FromString(request.resource_meta)
        return type(request)(resource_meta=mutated(ref, self.dice)).SerializeToString()


def _get(meta):
    return admin.GetTaskRequest(resource_meta=meta, task_type="pytorch", output_prefix="s3://bucket/x")


def _delete(meta):
    return admin.DeleteTaskRequest(resource_meta=meta, task_type="pytorch")


async def one_round(sender, number, clock):
    """Return the memory in use after the round, in bytes, when everything has been forgotten."""
    served = sender.served
    for _ in range(0, number, AT_ONCE):
        await asyncio.gather(*(sender.live() for _ in range(AT_ONCE)))
    await wait_until(lambda: len(served.orders) == 0, 60)
    clock[0] += 2 * REMEMBERED
    for entry in served.cache:
        served.cache.mark_deleted(entry)
    await wait_until(lambda: len(served.cache) == 0)
    clock[0] -= 2 * REMEMBERED
    served.cluster.calls.clear()
    gc.collect()
    return int(psutil.Process().memory_info().rss)


@pytest.mark.parametrize(
    ("number", "size"),
    [(200, 100), pytest.param(36_000, 4_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
async def test_mutated_requests_cause_no_crash_and_leave_no_state(tmp_path, caplog, number, size):
    caplog.set_level(logging.ERROR)
    # Each reference to a path that may not be read logs an error, and pytest would keep all of them.
    caplog.set_level(logging.CRITICAL, logger="backend_plugin.shell.output_collector")
    clock = [datetime.now(timezone.utc)]
    async with ready_server(tmp_path, cluster=ScriptedCluster(), now=lambda: clock[0]) as served:
        served.cluster.templates = pod_templates(Dice(0))
        sender = Sender(served, Dice(number))
        memory = [await one_round(sender, size, clock) for _ in range(1 + number // size)]
        print(sender.came_to, memory)
        assert served.cluster.objects == {}
        assert memory[-1] - memory[0] < MOST_GROWN
        wanted = {"CreateTask OK", "CreateTask INVALID_ARGUMENT", "GetTask INVALID_ARGUMENT"}
        assert wanted <= sender.came_to.keys()
        assert min(sender.came_to["QUEUED"], sender.came_to["FAILED"]) > number // 10
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


SIZES = (240 * 2**10, 1_000_000)  # One size below the limit of every part, and one that exceeds most limits.
LONGEST_MS = 500
"""The limit for one iteration of the event loop, in CPU time of its thread to exclude other load.

The usual time is 1 to 10 ms. Code whose time grows with the square of the size takes seconds.
"""


class Watchdog:
    """Measures the longest CPU time between two iterations of the event loop, by activity."""

    def __init__(self):
        self.longest = {}
        self.current = ""

    async def watch(self):
        before = time.thread_time()
        while True:
            await asyncio.sleep(0.002)
            now = time.thread_time()
            self.longest[self.current] = max(self.longest.get(self.current, 0), 1_000 * (now - before))
            before = now


@pytest.mark.parametrize("size", [SIZES[0], pytest.param(SIZES[1], marks=pytest.mark.soak)])
async def test_large_requests_do_not_block_the_event_loop(tmp_path, size):
    async with ready_server(tmp_path) as served:
        meta = await served.create(execution="f0")
        jobs = enumerate(hostile_requests.build_job_requests(size, meta))
        requests = [(name, "CreateTask", data) for name, data in hostile_requests.creations(size)]
        requests += [(f"{method} {number}", method, data) for number, (method, data) in jobs]
        watchdog, came_to = Watchdog(), {}
        watching = asyncio.create_task(watchdog.watch())
        for watchdog.current, method, data in requests:
            came_to[watchdog.current], _ = await hostile_requests.send(served.channel, method, data)
        watching.cancel()
    print({each: round(longest) for each, longest in watchdog.longest.items()}, came_to)
    assert {each: longest for each, longest in watchdog.longest.items() if longest > LONGEST_MS} == {}
    assert {*came_to.values()} <= {"OK", "INVALID_ARGUMENT"}
