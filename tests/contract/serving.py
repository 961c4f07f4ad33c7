"""The connector service on a real channel, with a scripted cluster and a file store."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import grpc
from builders import a_template
from flyteidl.admin import agent_pb2 as admin
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.service.agent_pb2_grpc import AsyncAgentServiceStub
from scripted_cluster import ScriptedCluster, ago
from tiny_service import wait_until

from backend_plugin.cli.clusters import OpenedCluster
from backend_plugin.cli.server_assembly import ServerParts, assemble_server, build_middleware
from backend_plugin.core import job_ref, settings
from backend_plugin.core.signing import SigningKeys
from backend_plugin.shell import reconciler as keepers
from backend_plugin.shell.credentials import Token
from backend_plugin.shell.rpc_middleware import RpcMiddleware
from backend_plugin.shell.settings import SettingsSources, load_settings

ASYNC = "/flyteidl.service.AsyncAgentService/"
CONTAINER = {"image": "train:1", "args": ["pyflyte-execute", "--output-prefix", "o"]}
NAMESPACE = "flytesnacks-development"
KEY = "of-the-tests" * 3
OF_CLUSTER = {"now", "nodes", "capabilities", "watch_status"}


def template(workers=1, options=None, **fields):
    """Return a task with a master and workers, and with these other fields of `custom`."""
    custom = {"workerReplicas": {"replicas": workers}, "masterReplicas": {"replicas": 1}, **(options or {})}
    return a_template(custom, **{"container": CONTAINER, **fields})


def metadata(attempt=0, execution="f1"):
    about = admin.TaskExecutionMetadata(namespace=NAMESPACE, labels={"execution-id": execution})
    about.task_execution_id.retry_attempt = attempt
    node = about.task_execution_id.node_execution_id
    node.node_id = "n0"
    node.execution_id.project, node.execution_id.domain = "flytesnacks", "development"
    node.execution_id.name = execution
    return about


def build_creation(attempt=0, execution="f1", **fields):
    """Return a CreateTask request for a `task`, or for a `template` with these other fields."""
    prefix = fields.pop("output_prefix", f"s3://bucket/{execution}/n0/data/{attempt}")
    about = metadata(attempt, execution)
    about.namespace = fields.pop("namespace", NAMESPACE)
    task = fields.pop("task", None) or template(**fields)
    return admin.CreateTaskRequest(template=task, output_prefix=prefix, task_execution_metadata=about)


@dataclass
class Served:
    cluster: ScriptedCluster
    parts: ServerParts
    front: RpcMiddleware  # The middleware of the services for users.
    port: int
    channel: grpc.aio.Channel
    store: Path

    def __post_init__(self):
        self.tasks, self.orders = self.parts.tasks, self.parts.orders
        self.cache, self.stub = self.tasks.cache, AsyncAgentServiceStub(self.channel)

    def prefix(self, attempt=0, execution="f1"):
        return f"file://{self.store}/{execution}/n0/data/{attempt}"

    async def create(self, attempt=0, execution="f1", **fields):
        fields = {"output_prefix": self.prefix(attempt, execution), **fields}
        request = build_creation(attempt, execution, **fields)
        return (await self.stub.CreateTask(request, timeout=60)).resource_meta

    def run(self, meta, **fields):
        """Let the job and its two replicas run; `fields` are in the status of each pod. Return its name."""
        name = name_of(meta)
        self.cluster.status(name, status("Running"))
        for replica in ("master-0", "worker-0"):
            self.cluster.apply(pod(name, replica, "Running", **fields))
        return name

    async def get(self, meta):
        request = admin.GetTaskRequest(resource_meta=meta, task_type="pytorch")
        return (await self.stub.GetTask(request, timeout=60)).resource

    async def phase(self, meta):
        return TaskExecution.Phase.Name((await self.get(meta)).phase)

    async def delete(self, meta):
        await self.stub.DeleteTask(admin.DeleteTaskRequest(resource_meta=meta), timeout=60)

    async def read_logs(self, meta):
        """Return the last two log lines of each replica."""
        answers = self.stub.GetTaskLogs(admin.GetTaskLogsRequest(resource_meta=meta, lines=2))
        return [line async for each in answers for line in each.body.results]

    def leave(self, name, data=b"", attempt=0):
        """Write a file below the output prefix, as the task's pod does."""
        folder = Path(self.prefix(attempt).removeprefix("file://"))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def get_now():
    return datetime.now(timezone.utc)


def assemble(store, cluster, platform=None, token=None, **fields):
    """Return the parts and the middleware of a server with default settings, except for these fields.

    The fields may be those of the settings and of `OpenedCluster`.
    """
    store.mkdir(parents=True, exist_ok=True)
    keys = store / "signing.keys"
    keys.write_text(KEY)
    here = OpenedCluster(
        cluster=cluster,
        platform=settings.read(platform or {}),
        **{"now": get_now, **{name: fields.pop(name) for name in OF_CLUSTER & fields.keys()}},
    )
    own = {"output_prefixes": [f"file://{store}", "s3://*"], "namespaces": ("flytesnacks-*",)}
    limits = {"max_concurrent_rpcs": 1_000, "accept_unsigned": False, "signing_keys_file": keys}
    server = replace(load_settings(SettingsSources()).settings, **{**own, **limits, **fields})
    parts = assemble_server(here, server)
    return parts, build_middleware(parts, server, Token.from_secret(token) if token else None)


@asynccontextmanager
async def serving(
    store,
    cluster=None,
    platform=None,
    *,
    seconds=keepers.RESYNC_SECONDS,
    reconciles=True,
    credentials=None,
    **fields,
):
    cluster = cluster or ScriptedCluster()
    parts, fronts = assemble(store, cluster, platform, **fields)
    # No setting has the period of the resync.
    parts.tasks.reconciler._seconds = parts.tasks.reconciler.deleter._seconds = seconds
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(tuple(fronts))
    add_port = partial(server.add_secure_port, server_credentials=credentials)
    port = (add_port if credentials else server.add_insecure_port)("127.0.0.1:0")
    await server.start()
    life = asyncio.create_task(parts.run() if reconciles else cluster.watch(parts.tasks.cache))
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    try:
        yield Served(cluster, parts, fronts[1], port, channel, store)
    finally:
        await channel.close()
        await server.stop(0)
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
        await parts.orders.drain(0)


LABEL = "training.kubeflow.org/"


@asynccontextmanager
async def ready_server(store, **more):
    async with serving(store, **more) as served:
        await wait_until(served.cache.ready.is_set)
        yield served


def status(*kinds):
    since = {"status": "True", "lastTransitionTime": ago(0)}
    conditions = [{"type": kind, "reason": f"PyTorchJob{kind}", **since} for kind in ("Created", *kinds)]
    return {"startTime": ago(0), "conditions": conditions}


def pod(job, replica, phase, **fields):
    role, _, index = replica.partition("-")
    labels = {LABEL + "job-name": job, LABEL + "replica-type": role, LABEL + "replica-index": index}
    return {
        "kind": "Pod",
        "metadata": {"name": f"{job}-{replica}", "namespace": NAMESPACE, "labels": labels},
        "spec": {"nodeName": "n1"},
        "status": {"phase": phase, **fields},
    }


def terminated(code):
    state = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": ago(0)}}
    return [{"name": "pytorch", "state": state}]


def name_of(meta):
    return job_ref.decode(meta).name


async def is_phase(served, meta, phase):
    return await served.phase(meta) == phase


def forged(meta, **fields):
    """Return a reference to something else with a valid signature, as from a server with another defect."""
    return job_ref.encode(replace(job_ref.decode(meta), **fields), SigningKeys(keys=(KEY.encode(),)))  # type: ignore[arg-type]
