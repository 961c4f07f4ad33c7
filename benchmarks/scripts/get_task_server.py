"""A server for GetTask: the connector with many jobs in its cache, or one with a constant response.

``python benchmarks/scripts/get_task_server.py ours|bare|flytekit JOBS KIND`` prints its port. ``ours`` is the
connector, with JOBS jobs of KIND (a name in `job_kinds`). ``bare`` (a plain gRPC server) and ``flytekit``
(flytekit's connector service) have the constant response. For each line on stdin the program prints its
processor time in seconds and its memory in MiB. It ends when stdin closes.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import grpc
import psutil
from flyteidl.admin import agent_pb2 as admin

from benchmarks.scripts.job_kinds import KINDS, JobKind

PROJECT = "flytesnacks-development"
KEY = b"of this benchmark"
METHOD = "flyteidl.service.AsyncAgentService"


def build_execution(number: int) -> str:
    return f"f{number:08x}"


def build_prefix(number: int) -> str:
    return f"s3://bucket/metadata/propeller/{PROJECT}-{build_execution(number)}/n0/data/0"


def build_job_name(number: int) -> str:
    return f"{build_execution(number)}-n0-0-4fc1931eedf1"


def build_reference(number: int, kind: JobKind) -> bytes:
    from backend_plugin.core import job_ref
    from backend_plugin.core.job import JobRef
    from backend_plugin.core.signing import SigningKeys

    return job_ref.encode(
        JobRef(
            dialect=kind.name,
            namespace=PROJECT,
            name=build_job_name(number),
            output_prefix=build_prefix(number),
            uid=f"{number:08x}-6f1c-4d2e-9c52-0a8d5f1f7a10",
        ),
        SigningKeys(keys=(KEY,)),
    )


# ---- the objects of a cluster


def build_job(number: int, now: datetime, kind: JobKind, *states: str) -> dict[str, Any]:
    from backend_plugin.core.job import Attempt, Deadlines
    from backend_plugin.core.task_annotation import encode

    run = Attempt(
        output_prefix=build_prefix(number),
        project="flytesnacks",
        domain="development",
        execution=build_execution(number),
        node_id="n0",
        attempt=0,
        task_project="flytesnacks",
        task_domain="development",
        task_name="train.workflow.train",
        task_version="v1",
        namespace=PROJECT,
    )
    began = format_time(now - timedelta(minutes=number % 50 + 1))
    return {
        "apiVersion": f"{kind.group}/{kind.version}",
        "kind": kind.name,
        "metadata": {
            "name": build_job_name(number),
            "namespace": PROJECT,
            "uid": f"{number:08x}-6f1c-4d2e-9c52-0a8d5f1f7a10",
            "creationTimestamp": began,
            "annotations": {
                "kfpytorch.flyte.org/output-prefix": run.output_prefix,
                "kfpytorch.flyte.org/task": encode(run, Deadlines(), {}),
            },
        },
        "spec": kind.spec,
        "status": kind.build_status(*states, began=began),
    }


def build_pod(number: int, index: int, now: datetime, kind: JobKind) -> dict[str, Any]:
    replica = kind.replicas[index]
    began = format_time(now - timedelta(minutes=number % 50 + 1))
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "metadata": {
            "name": kind.build_pod_name(build_job_name(number), *replica),
            "namespace": PROJECT,
            "uid": f"{number:08x}-6f1c-4d2e-9c52-0a8d5f1f7b{index:02x}",
            "creationTimestamp": began,
            "labels": kind.build_labels(build_job_name(number), *replica),
            "ownerReferences": [{"uid": f"{number:08x}-6f1c-4d2e-9c52-0a8d5f1f7a10"}],
        },
        "spec": {"nodeName": f"gpu-node-{number % 500}"},
        "status": {
            "phase": "Running",
            "startTime": began,
            "conditions": [{"type": each, "status": "True", "lastTransitionTime": began} for each in kinds],
            "containerStatuses": [
                {
                    "name": kind.container,
                    "image": "registry.example.org/team/train:v1",
                    "containerID": f"containerd://{number:060x}{index:04x}",
                    "restartCount": 0,
                    "state": {"running": {"startedAt": began}},
                }
            ],
        },
    }


def format_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- the sides


def get_now() -> datetime:
    return datetime.now(timezone.utc)


async def start_ours(jobs: int, kind: JobKind) -> tuple[grpc.aio.Server, int]:
    from backend_plugin.core import settings
    from backend_plugin.core.signing import SigningKeys
    from backend_plugin.shell import connector_service, memory_tuning
    from backend_plugin.shell.allowlist import Allowlist
    from backend_plugin.shell.background_operations import BackgroundOperations
    from backend_plugin.shell.cache import Cache
    from backend_plugin.shell.judge import Judge
    from backend_plugin.shell.metrics import Metrics
    from backend_plugin.shell.output_collector import OutputCollector
    from backend_plugin.shell.output_prefixes import OutputPrefixes
    from backend_plugin.shell.output_reader import OutputReader
    from backend_plugin.shell.reconciler import Reconciler
    from backend_plugin.shell.reloaded_value import ReloadedValue
    from backend_plugin.shell.rpc_middleware import RpcMiddleware
    from backend_plugin.shell.task_responses import TaskResponses

    links = {"kubernetes-enabled": True, "kubernetes-url": "https://kubernetes.example.org"}
    judge = Judge(settings=settings.read({"kfpytorch": {"logs": links}}), now=get_now)
    metrics, cache, prefixes = Metrics(), Cache(get_now), OutputPrefixes()
    orders, answers = BackgroundOperations(metrics), TaskResponses(judge)
    cluster, ring = EmptyCluster(), ReloadedValue((), lambda: SigningKeys(keys=(KEY,)))
    reconciler = Reconciler(
        cluster, cache, answers, OutputCollector(cluster, cache, OutputReader(prefixes), orders, ring)
    )
    fill_cache(cache, jobs, kind)
    tasks = connector_service.ConnectorService(
        cluster=cluster, cache=cache, answers=answers, reconciler=reconciler,
        metrics=metrics, allowed=Allowlist(prefixes=prefixes), ring=ring,
    )  # fmt: skip
    server = grpc.aio.server()
    handlers = connector_service.build_handlers(tasks)
    server.add_generic_rpc_handlers((RpcMiddleware(handlers=handlers, limit=1_000, metrics=metrics),))
    tuning = memory_tuning.tune_collector(cache.ready)  # As in `kfpytorch serve`.
    KEPT.extend(
        asyncio.create_task(each) for each in (reconciler.run(), change_statuses(cache, jobs, kind), tuning)
    )
    return server, server.add_insecure_port("127.0.0.1:0")


def fill_cache(cache: Any, jobs: int, kind: JobKind) -> None:
    """Add jobs of KIND with their pods to the cache, as after the first lists."""
    from backend_plugin.core import object_readers
    from backend_plugin.core.dialects import table
    from backend_plugin.core.observed import Event, Job, Pod

    began = get_now()
    cache.replace_records(
        Job,
        (
            (PROJECT, table.read_job(copy_manifest(build_job(each, began, kind, "Running"))))
            for each in range(jobs)
        ),
    )
    cache.replace_records(
        Pod,
        (
            (PROJECT, object_readers.read_pod(copy_manifest(build_pod(each, i, began, kind))))
            for each in range(jobs)
            for i in range(4)
        ),
    )
    cache.replace_records(Event, ())  # Until events have been listed, the server judges each job repeatedly.


KEPT: list[Any] = []


def copy_manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a copy with separate strings, as in JSON that was just parsed."""
    read: dict[str, Any] = json.loads(json.dumps(manifest))
    return read


async def change_statuses(cache: Any, jobs: int, kind: JobKind) -> None:
    """Change the statuses of jobs in the cache forever, twenty per second."""
    from backend_plugin.core.dialects.table import read_job

    for number in itertools.cycle(range(0, jobs, 7)):
        manifest = build_job(number, get_now(), kind, *(() if number % 2 else ("Running",)))
        cache.put_record(PROJECT, read_job(manifest))
        await asyncio.sleep(0.05)


class EmptyCluster:
    """A cluster that is empty, sends no events and rejects all other calls."""

    async def watch(self, _: Any) -> None:
        """Wait forever without events."""
        await asyncio.Event().wait()

    async def list_prerequisites(self) -> tuple[()]:
        """Return nothing; the reconciler lists the prerequisites of jobs when it starts."""
        return ()

    def __getattr__(self, method: str) -> Any:
        raise AssertionError(f"unexpected call of the cluster: {method}")


def build_constant_response() -> bytes:
    """Return the response of our server for a running job."""
    from flyteidl.core.execution_pb2 import TaskLog

    links = [
        TaskLog(
            name=f"Kubernetes logs {index}",
            uri=f"https://kubernetes.example.org/#!/log/{PROJECT}/{index}",
        )
        for index in range(4)
    ]
    resource = admin.Resource(phase="RUNNING", message="4 of 4 replicas ready", log_links=links)
    resource.custom_info.update(
        {"state": "running", "job": build_job_name(1), "namespace": PROJECT, "ready": 4}
    )
    return resource.SerializeToString()  # type: ignore[no-any-return]


async def start_bare(_: int, __: JobKind) -> tuple[grpc.aio.Server, int]:
    resource = admin.Resource.FromString(build_constant_response())

    async def get(_: admin.GetTaskRequest, __: Any) -> admin.GetTaskResponse:
        return admin.GetTaskResponse(resource=resource)

    handler = grpc.unary_unary_rpc_method_handler(
        get, admin.GetTaskRequest.FromString, admin.GetTaskResponse.SerializeToString
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(METHOD, {"GetTask": handler}),))
    return server, server.add_insecure_port("127.0.0.1:0")


async def start_flytekit(_: int, __: JobKind) -> tuple[grpc.aio.Server, int]:
    from dataclasses import dataclass

    from flyteidl.service.agent_pb2_grpc import add_AsyncAgentServiceServicer_to_server
    from flytekit.extend.backend.base_connector import (
        AsyncConnectorBase,
        ConnectorRegistry,
        Resource,
        ResourceMeta,
    )
    from flytekit.extend.backend.connector_service import AsyncConnectorService

    resource = admin.Resource.FromString(build_constant_response())

    @dataclass
    class Meta(ResourceMeta):  # type: ignore[misc]  # flytekit ships no types.
        name: str = ""

        @classmethod
        def decode(cls, _: bytes) -> "Meta":
            return cls(name="")

    class Constant(AsyncConnectorBase):  # type: ignore[misc]
        name = "constant"

        def __init__(self) -> None:
            super().__init__(task_type_name="pytorch", task_type_version=1, metadata_type=Meta)

        async def create(self, **_: Any) -> Meta:
            return Meta()

        async def get(self, **_: Any) -> Resource:
            return Resource(phase=resource.phase, message=resource.message, custom_info={"state": "running"})

        async def delete(self, **_: Any) -> None: ...

    ConnectorRegistry.register(Constant(), override=True)
    server = grpc.aio.server()
    add_AsyncAgentServiceServicer_to_server(AsyncConnectorService(), server)
    return server, server.add_insecure_port("127.0.0.1:0")


SIDES: dict[str, Callable[[int, JobKind], Awaitable[tuple[grpc.aio.Server, int]]]] = {
    "ours": start_ours,
    "bare": start_bare,
    "flytekit": start_flytekit,
}


async def main(side: str, jobs: int, kind: JobKind) -> None:
    server, port = await SIDES[side](jobs, kind)
    await server.start()
    process = psutil.Process()
    print(port, flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        times = process.cpu_times()
        print(json.dumps([times.user + times.system, process.memory_info().rss / 2**20]), flush=True)
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), KINDS[sys.argv[3]]))
