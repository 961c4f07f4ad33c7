"""The job service on a real port with its own event loop, so that tests can use the blocking client."""

import asyncio
import threading
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partialmethod
from pathlib import Path
from tempfile import TemporaryDirectory

from builders import a_run
from scripted_cluster import ScriptedCluster, format_time
from serving import pod, serving
from tiny_service import wait_until

from backend_plugin.core import task_annotation
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.job import Deadlines
from backend_plugin.embedded.node_transitions import build_node, cordon, mark_unreachable, restore
from backend_plugin.shell.rpc_middleware import RpcMiddleware

NAMESPACE = "project-development"
TOKEN = "open-sesame"
NOW = datetime(2026, 1, 1, 0, 2, tzinfo=timezone.utc)

_ENDED = {"exitCode": 1, "reason": "Error", "startedAt": format_time(5), "finishedAt": format_time(50)}
EXITED = {"terminated": _ENDED}


class FewNodes:
    def __init__(self, *names):
        capacity = {"cpu": "2", "memory": "4Gi"}
        self._nodes = {name: build_node(name, capacity=capacity, labels={}, now=NOW) for name in names}

    def list_nodes(self):
        return [*self._nodes.values()]

    def _change(self, change, name):
        if name not in self._nodes:
            raise RequestRejected(404, "NotFound", f'nodes "{name}" not found')
        self._nodes[name] = change(self._nodes[name])

    fail_node = partialmethod(_change, lambda node: mark_unreachable(node, NOW))
    drain_node = partialmethod(_change, cordon)
    restore_node = partialmethod(_change, lambda node: restore(node, NOW))


def a_job(name, *conditions, made=0, workers=1, **fields):
    """Return a job of an attempt that its name contains: `<execution>-<node>-<attempt>-...`."""
    execution, node, attempt = (*name.split("-"), "n0", "0")[:3]
    number = int(attempt) if attempt.isdigit() else 0
    run = a_run(execution=execution, node_id=node, attempt=number, task_name="flows.train")
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "creationTimestamp": format_time(made),
        "annotations": {task_annotation.ANNOTATION: task_annotation.encode(run, Deadlines(), {})},
        **fields.pop("metadata", {}),
    }
    replicas = {"Master": {"replicas": 1}, "Worker": {"replicas": workers}}
    job = {"kind": "PyTorchJob", "metadata": metadata, "spec": {"pytorchReplicaSpecs": replicas, **fields}}
    return {**job, "status": status("Created", *conditions)}


def status(*conditions):
    times = {"completionTime": format_time(60)} if {"Succeeded", "Failed"} & set(conditions) else {}
    since = {"Created": format_time(0)}
    found = [
        {"type": kind, "status": "True", "lastTransitionTime": since.get(kind, format_time(60))}
        for kind in conditions
    ]
    return {"startTime": format_time(1), **times, "conditions": found}


def a_pod(job, replica, state=None, **fields):
    phase, node = fields.pop("phase", "Running"), fields.pop("node", "node-0")
    ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
    container = {"name": "pytorch", "state": state or {"running": {"startedAt": format_time(5)}}, **fields}
    made = pod(job, replica, phase, conditions=[ready], containerStatuses=[container])
    made["metadata"] |= {"namespace": NAMESPACE, "creationTimestamp": format_time(1)}
    return {**made, "spec": {"nodeName": node}}


@dataclass
class ServedJobs:
    endpoint: str
    cluster: ScriptedCluster
    front: RpcMiddleware
    _loop: asyncio.AbstractEventLoop = field(repr=False)

    def do(self, change):
        async def done():
            return change()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(60)

    def succeed(self, job):
        self.do(lambda: self.cluster.status(job, status("Created", "Running", "Succeeded")))

    def wait_for_stream(self):
        asyncio.run(wait_until(lambda: self.front.streaming > 0))

    def apply(self, *manifests):
        for manifest in manifests:
            self.do(lambda manifest=manifest: self.cluster.apply(manifest))


@contextmanager
def serving_jobs(*, token=None, nodes=None, credentials=None):
    loop, stack = asyncio.new_event_loop(), AsyncExitStack()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start(folder):
        fields = {"now": lambda: NOW, "namespaces": ("*",), "nodes": nodes, "token": token}
        # Without the reconciler, so that only tests change the jobs.
        context = serving(Path(folder), reconciles=False, credentials=credentials, **fields)
        served = await stack.enter_async_context(context)
        await served.cache.ready.wait()
        return served

    async def stop():
        await stack.aclose()
        # Cancelled calls end one iteration later, and need the loop until then.
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        if rest:
            await asyncio.wait(rest, timeout=5)

    with TemporaryDirectory() as folder:
        served = asyncio.run_coroutine_threadsafe(start(folder), loop).result(60)
        try:
            yield ServedJobs(f"127.0.0.1:{served.port}", served.cluster, served.front, loop)
        finally:
            asyncio.run_coroutine_threadsafe(stop(), loop).result(60)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
