"""Mutated requests: each is answered or rejected with a reason, and leaves no state."""

import asyncio
import gc
import itertools
import logging
import random
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from flyteidl.admin import agent_pb2 as admin
from flyteidl.core.execution_pb2 import TaskExecution
from google.protobuf.message import Message
from mutation import mutated
from scripted_cluster import ScriptedCluster
from serving import ASYNC, Served, metadata, serving, template, wait_until

from backend_plugin.core.values import Manifest
from backend_plugin.embedded.operators.pytorchjob import admit_job
from backend_plugin.shell.reconciler import REMEMBERED
from kfpytorch_idl.v1 import job_ref_pb2

AT_ONCE = 32
# The allocator keeps the memory of the first round.
MOST_GROWN = 30 * 2**20
OK, INVALID = grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT
TOO_MUCH = grpc.StatusCode.RESOURCE_EXHAUSTED  # The message exceeds gRPC's own limit.
DENIED = grpc.StatusCode.PERMISSION_DENIED  # The reference has an invalid signature.
OVER = grpc.StatusCode.FAILED_PRECONDITION  # A mutated prefix may equal that of the next attempt.
POD = {
    "containers": [
        {
            "name": "primary",
            "image": "image:1",
            "args": ["pyflyte-execute"],
            "env": [{"name": "LEVEL", "value": "info"}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        }
    ],
    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    "affinity": {},
    "restartPolicy": "Never",
}
ELASTIC = {
    "workerReplicas": {"common": {"replicas": 2, "image": "image:2", "resources": {}}},
    "elasticConfig": {"rdzvBackend": "c10d", "minReplicas": 1, "maxReplicas": 2, "nprocPerNode": 2},
    "runPolicy": {"cleanPodPolicy": "CLEANPOD_POLICY_ALL", "backoffLimit": 3},
    "kfpytorch": {"gang": {"minMember": 2, "queueTimeoutSeconds": 60}},
}


BASE = {"metadata": {"name": "base"}, "template": {"spec": {"nodeSelector": {"pool": "flyte"}}}}
TEMPLATES = [
    template(workers=2),
    template(custom=ELASTIC, metadata={"podTemplateName": "base", "retries": {"retries": 2}}),
    template(
        container=None,
        k8sPod={"podSpec": POD, "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}},
        config={"primary_container_name": "primary"},
    ),
]


class AdmittingCluster(ScriptedCluster):
    """A cluster that admits and stores jobs as the API server does."""

    async def create(self, manifest: Manifest) -> Manifest:
        return await super().create(admit_job(manifest))


class Sender:
    """Sends bytes and counts the results."""

    def __init__(self, served: Served, dice: random.Random) -> None:
        self.served = served
        self.dice = dice
        self.came_to: Counter[str] = Counter()
        self.executions = itertools.count()

    def request(self) -> Message:
        """Return a request that propeller could send, for a new execution."""
        execution, attempt = f"f{next(self.executions)}", self.dice.randrange(3)
        return admin.CreateTaskRequest(
            template=self.dice.choice(TEMPLATES),
            output_prefix=self.served.prefix(attempt, execution),
            task_execution_metadata=metadata(attempt, execution),
        )

    async def send(self, method: str, data: bytes) -> bytes | None:
        """Return the response, or None for an expected rejection; fail the test on any other status."""
        ask = self.served.channel.unary_unary(ASYNC + method)
        call = ask(data, timeout=60)
        code = await call.code()
        self.came_to[f"{method} {code.name}"] += 1
        expected = (OK, INVALID, TOO_MUCH, OVER if method == "CreateTask" else DENIED)
        assert code in expected, (method, await call.details(), data)
        assert code is OK or await call.details(), (method, data)
        return await call if code is OK else None

    async def live(self) -> None:
        """Run the life of a task with a mutated CreateTask request, and send mutated references to it."""
        answer = await self.send("CreateTask", mutated(self.request(), self.dice))
        if answer is None:
            return
        meta = admin.CreateTaskResponse.FromString(answer).resource_meta
        resource = await self.get(meta)
        phase = TaskExecution.Phase.Name(resource.phase)
        self.came_to[phase] += 1
        # A mutated prefix may equal that of another task, which may have ended.
        assert phase != "UNDEFINED"
        assert resource.message
        await self.send("GetTask", self.forged(_get(meta)))
        await self.send("DeleteTask", self.forged(_delete(meta)))
        assert await self.send("DeleteTask", _delete(meta).SerializeToString()) == b""

    async def get(self, meta: bytes) -> admin.Resource:
        answer = await self.send("GetTask", _get(meta).SerializeToString())
        assert answer is not None
        return admin.GetTaskResponse.FromString(answer).resource

    def forged(self, request: Any) -> bytes:
        """Return a mutated request, or one with a mutated reference."""
        if self.dice.random() < 0.5:
            return mutated(request, self.dice)
        ref = job_ref_pb2.JobRef.FromString(request.resource_meta)
        return type(request)(resource_meta=mutated(ref, self.dice)).SerializeToString()


def _get(meta: bytes) -> admin.GetTaskRequest:
    return admin.GetTaskRequest(resource_meta=meta, task_type="pytorch", output_prefix="s3://bucket/x")


def _delete(meta: bytes) -> admin.DeleteTaskRequest:
    return admin.DeleteTaskRequest(resource_meta=meta, task_type="pytorch")


async def one_round(sender: Sender, number: int, clock: list[datetime]) -> int:
    """Return the memory in use after the round, in bytes."""
    for _ in range(0, number, AT_ONCE):
        await asyncio.gather(*(sender.live() for _ in range(AT_ONCE)))
    return await forgotten(sender.served, clock)


async def forgotten(served: Served, clock: list[datetime]) -> int:
    """Return the memory in use, in bytes, after everything has ended and has been forgotten."""
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
async def test_mutated_requests_cause_no_crash_and_leave_no_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int, size: int
) -> None:
    caplog.set_level(logging.ERROR)
    # Each reference to a path that may not be read logs an error, and pytest would keep all of them.
    caplog.set_level(logging.CRITICAL, logger="backend_plugin.shell.output_collector")

    clock = [datetime.now(timezone.utc)]
    async with serving(tmp_path, AdmittingCluster(), now=lambda: clock[0]) as served:
        await wait_until(served.cache.ready.is_set)
        served.cluster.templates = [BASE]
        sender = Sender(served, random.Random(number))
        memory = [await one_round(sender, size, clock) for _ in range(1 + number // size)]

        print(sender.came_to, memory)
        assert served.cluster.objects == {}
        assert memory[-1] - memory[0] < MOST_GROWN
        wanted = {"CreateTask OK", "CreateTask INVALID_ARGUMENT", "GetTask INVALID_ARGUMENT"}
        assert wanted <= sender.came_to.keys()
        assert min(sender.came_to["QUEUED"], sender.came_to["FAILED"]) > number // 10
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
