"""Create jobs in a real API server that look as if they train: by CreateTask, POSTs or copies.

There is no training and no operator. This module writes the objects of the operator and the kubelets.
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import psutil
from flyteidl.admin import agent_pb2 as admin
from flyteidl.core.literals_pb2 import LiteralMap
from kubernetes.aio import client
from rig import backend, operator
from rig.backend import Backend
from rig.control_plane import ControlPlane, Options

from backend_plugin import task_request
from backend_plugin.cli import propeller_emulator, python_file
from backend_plugin.core import job_ref, names
from backend_plugin.core.dialects.table import DEFAULT
from backend_plugin.core.job import Attempt, JobRef
from benchmarks.scripts.etcd_copies import Etcd, uids
from benchmarks.scripts.processors import running_on

AT_ONCE: Final = 16
_NODE: Final = "gpu-node-1"
_SERVICE: Final = "flyteidl.service.AsyncAgentService"
_TASK: Final = """
from flytekit import Resources, task
from flytekitplugins.kfpytorch import PyTorch, Worker

@task(
    task_config=PyTorch(worker=Worker(replicas=3)),
    container_image="train:1",
    requests=Resources(cpu="4", mem="16Gi", gpu="1"),
    environment={f"VARIABLE_{number}": f"some value of the variable {number}" for number in range(20)},
)
def train(epochs: int) -> float:
    return 0.0
"""


class Work:
    """One task, in any number of executions."""

    def __init__(self, folder: Path) -> None:
        (folder / "train.py").write_text(_TASK)
        self._template = python_file.load_task(folder / "train.py", None, image=None).template
        self._store = folder / "store"
        self.namespace = f"{self._template.id.project}-{self._template.id.domain}"

    def request(self, name: str) -> admin.CreateTaskRequest:
        """Return the request of FlytePropeller for an execution with this name."""
        node = propeller_emulator.TaskNode(
            template=self._template, inputs=LiteralMap(), store=self._store, execution=name
        )
        return node.build_request(0)

    def run(self, name: str) -> Attempt:
        """Return the first attempt of the Flyte node in the execution."""
        asked = self.request(name)
        return task_request.read_attempt(asked.task_execution_metadata, asked.output_prefix)

    def job_name(self, name: str) -> str:
        """Return the name of the job of the execution."""
        return names.job_name(self.run(name))

    def reference(self, name: str, uid: str | None = None) -> bytes:
        """Return the reference in the response of CreateTask."""
        run = self.run(name)
        return job_ref.encode(
            JobRef(
                dialect=DEFAULT.name,
                namespace=run.namespace,
                name=names.job_name(run),
                output_prefix=run.output_prefix,
                uid=uid,
            )
        )


@contextmanager
def api_server(folder: Path, processors: set[int]) -> Iterator[ControlPlane]:
    """Start an API server with the PyTorchJob CRD on these processors, without controllers."""
    plane = ControlPlane(folder, Options(controllers=False))
    with ExitStack() as stack:
        with running_on(processors):
            stack.enter_context(plane)
        plane.crds(operator.crds())
        backend.permit(plane)
        yield plane


@contextmanager
def serving(plane: ControlPlane, folder: Path, work: Work) -> Iterator[tuple[psutil.Process, "Caller"]]:
    """Start our server, and yield it with a client when it is ready."""
    folder.mkdir()
    with Backend(plane, folder, known={"KFPYTORCH_ACCEPT_UNSIGNED": "true"}) as server:
        yield psutil.Process(server.process.pid), Caller(server.endpoint, work)


class Caller:
    """A client that sends the requests of FlytePropeller to one server."""

    def __init__(self, endpoint: str, work: Work) -> None:
        self._channel = grpc.aio.insecure_channel(endpoint)
        self._work = work
        self._create = self._channel.unary_unary(
            f"/{_SERVICE}/CreateTask",
            admin.CreateTaskRequest.SerializeToString,
            admin.CreateTaskResponse.FromString,
        )
        self._get = self._channel.unary_unary(
            f"/{_SERVICE}/GetTask", admin.GetTaskRequest.SerializeToString, admin.GetTaskResponse.FromString
        )

    async def create(self, request: admin.CreateTaskRequest) -> None:
        """Create a job; a rejection is an error."""
        answer = await self._create(request)
        assert job_ref.decode(answer.resource_meta).refusal is None, answer

    async def phase(self, reference: bytes) -> int:
        """Return the current phase of a task."""
        category = admin.TaskCategory(name="pytorch", version=1)
        asked = admin.GetTaskRequest(
            task_type="pytorch", resource_meta=reference, task_category=category, output_prefix="file:///"
        )
        return int((await self._get(asked)).resource.phase)

    async def close(self) -> None:
        """Close the connections."""
        await self._channel.close(None)


class Bare:
    """A minimal client of the API server, with the user of our server."""

    def __init__(self, plane: ControlPlane, user: str) -> None:
        self._server = plane.server
        trusted = ssl.create_default_context(cafile=str(plane.authority.certificate))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=AT_ONCE, ssl=trusted),
            headers={"Authorization": f"Bearer {plane.token(user)}"},
        )

    async def post(self, path: str, body: Mapping[str, Any]) -> None:
        """Create an object with strict validation of its fields."""
        parameters = {"fieldManager": "bare", "fieldValidation": "Strict"}
        async with self._session.post(self._server + path, json=body, params=parameters) as answer:
            assert answer.ok, await answer.text()
            await answer.read()

    async def patch(self, path: str, body: Mapping[str, Any]) -> None:
        """Merge a patch into an object."""
        kind = {"Content-Type": "application/merge-patch+json"}
        async with self._session.patch(self._server + path, json=body, headers=kind) as answer:
            assert answer.ok, await answer.text()
            await answer.read()

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


class Official:
    """A client with the official package, with the user of our server."""

    def __init__(self, plane: ControlPlane, user: str, namespace: str) -> None:
        said = client.Configuration(host=plane.server, ssl_ca_cert=str(plane.authority.certificate))
        said.api_key["BearerToken"] = f"Bearer {plane.token(user)}"
        said.connection_pool_maxsize = AT_ONCE
        self._client = client.ApiClient(said)
        self._objects = client.CustomObjectsApi(self._client)
        self._namespace = namespace

    async def post(self, body: Mapping[str, Any]) -> None:
        """Create a PyTorchJob with strict validation of its fields."""
        await self._objects.create_namespaced_custom_object(
            "kubeflow.org",
            "v1",
            self._namespace,
            "pytorchjobs",
            dict(body),
            field_manager="official",
            field_validation="Strict",
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()  # type: ignore[no-untyped-call]


async def at_once(asked: Sequence[Callable[[], Awaitable[object]]]) -> float:
    """Make all calls, `AT_ONCE` at a time, and return the seconds that they took."""
    waiting = list(reversed(asked))

    async def work() -> None:
        while waiting:
            await waiting.pop()()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return time.perf_counter() - began


def processor(process: psutil.Process) -> float:
    """Return the processor seconds since the start of the process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def play(plane: ControlPlane, path: str, *, running: bool) -> None:
    """Write the objects of the operator and the kubelets for a job: four pods and the statuses."""
    job = plane.admin.get(path)
    assert job is not None
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    for role, spec in job["spec"]["pytorchReplicaSpecs"].items():
        for index in range(spec["replicas"]):
            plane.admin.create(_pod(job, role.lower(), index, spec["template"]))
            own = f"/api/v1/namespaces/{namespace}/pods/{name}-{role.lower()}-{index}/status"
            plane.admin.patch(own, {"status": pod_status(running=running)})
    plane.admin.patch(f"{path}/status", {"status": job_status(running=running)})


class Copies:
    """Copies of the job and pods of one execution; their names are a letter and a number, as in `pattern`."""

    def __init__(self, etcd: Etcd, work: Work, pattern: str) -> None:
        self._etcd, self._work, self._pattern = etcd, work, pattern
        self._made = etcd.patterns("kubeflow.org/pytorchjobs", pattern) | etcd.patterns("pods", pattern)
        assert len(self._made) == 5, f"a job and four pods, not {list(self._made)}"

    def name(self, number: int) -> str:
        """Return the name of the execution of a copy."""
        return f"{self._pattern[0]}{number:07}"

    def make(self, numbers: range) -> None:
        """Create all five objects of each copy."""
        self._etcd.copy(self._made, self._words, numbers)

    def move_masters(self, numbers: range) -> None:
        """Move the first pod of each copy to another node."""
        masters = {key: value for key, value in self._made.items() if b"-master-" in key}
        self._etcd.copy(masters, lambda number: {**self._words(number), _NODE: f"{_NODE[:-1]}2"}, numbers)

    def _words(self, number: int) -> Mapping[str, str]:
        name = self.name(number)
        before, run = self._work.run(self._pattern), self._work.run(name)
        return {
            names.compute_identity(before): names.compute_identity(run),
            names.job_name(before): names.job_name(run),
            self._pattern: name,
            **{uid: f"{number:08x}{uid[8:]}" for uid in uids(self._made.values())},
        }


def pod_status(*, running: bool) -> Mapping[str, Any]:
    now = _now()
    state = {"running": {"startedAt": now}} if running else {"waiting": {"reason": "ContainerCreating"}}
    status = {"name": "pytorch", "image": "train:1", "imageID": "", "restartCount": 0, "ready": running}
    return {
        "phase": "Running" if running else "Pending",
        "startTime": now,
        "conditions": [
            {"type": kind, "status": str(running), "lastTransitionTime": now}
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [{**status, "state": state}],
    }


def job_status(*, running: bool) -> Mapping[str, Any]:
    now = _now()
    kinds = ("Created", "Running") if running else ("Created",)
    return {
        "startTime": now,
        "conditions": [
            {"type": each, "status": "True", "reason": f"PyTorchJob{each}", "lastTransitionTime": now}
            for each in kinds
        ],
        "replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": 3}},
    }


def _pod(job: Mapping[str, Any], role: str, index: int, template: Mapping[str, Any]) -> dict[str, Any]:
    meta = job["metadata"]
    said = template.get("metadata", {})
    labels = {
        **said.get("labels", {}),
        "training.kubeflow.org/job-name": meta["name"],
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": str(index),
    }
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{meta['name']}-{role}-{index}",
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": said.get("annotations", {}),
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {**template["spec"], "nodeName": _NODE},
    }


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
