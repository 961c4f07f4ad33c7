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
from rig import backend, operator, trainer
from rig.backend import Backend
from rig.control_plane import ControlPlane, Options
from rig.process import wait_until

from backend_plugin.cli import propeller_emulator, python_file
from backend_plugin.core import job_ref, names
from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.job import Attempt, JobRef
from backend_plugin.shell import create_request
from benchmarks.scripts.etcd_copies import Etcd, list_uids
from benchmarks.scripts.job_kinds import DEFAULT, JobKind
from benchmarks.scripts.processors import run_on

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
    """A task whose executions run as jobs of one kind; `name` is the name of an execution."""

    def __init__(self, folder: Path, kind: JobKind = DEFAULT) -> None:
        self.kind = kind
        (folder / "train.py").write_text(_TASK)
        self._template = python_file.load_task(folder / "train.py", None, image=None).template
        self._store = folder / "store"
        self.namespace = f"{self._template.id.project}-{self._template.id.domain}"

    def build_request(self, name: str) -> admin.CreateTaskRequest:
        """Return the request of FlytePropeller for an execution with this name."""
        node = propeller_emulator.TaskNode(
            template=self._template, inputs=LiteralMap(), store=self._store, execution=name
        )
        return node.build_request(0)

    def run(self, name: str) -> Attempt:
        """Return the first attempt of the task in the execution."""
        asked = self.build_request(name)
        return create_request.read_attempt(asked.task_execution_metadata, asked.output_prefix)

    def build_job_name(self, name: str) -> str:
        """Return the name of the job of the execution."""
        return names.job_name(self.run(name), DIALECTS[self.kind.name].longest_name)

    def build_path(self, name: str) -> str:
        """Return the API path of the job of the execution."""
        return self.kind.build_path(self.namespace, self.build_job_name(name))

    def build_reference(self, name: str, uid: str | None = None) -> bytes:
        """Return the reference to the job that CreateTask returns."""
        run = self.run(name)
        return job_ref.encode(
            JobRef(
                dialect=self.kind.name,
                namespace=run.namespace,
                name=self.build_job_name(name),
                output_prefix=run.output_prefix,
                uid=uid,
            )
        )


@contextmanager
def run_api_server(folder: Path, processors: set[int]) -> Iterator[ControlPlane]:
    """Start an API server with the CRDs of jobs on these processors, without controllers."""
    plane = ControlPlane(folder, Options(controllers=False))
    with ExitStack() as stack:
        with run_on(processors):
            stack.enter_context(plane)
        plane.crds([*operator.crds(), *trainer.list_crds()])
        backend.permit(plane)
        yield plane


@contextmanager
def run_server(plane: ControlPlane, folder: Path, work: Work) -> Iterator[tuple[psutil.Process, "Caller"]]:
    """Start our server, and yield it with a client when it is ready."""
    folder.mkdir()
    settings = {"kfpytorch": {"dialect": work.kind.setting}}
    known = {"KFPYTORCH_ACCEPT_UNSIGNED": "true"}
    with Backend(plane, folder, known=known, settings=settings) as server:
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
        """Create a job; fail if the server rejects it."""
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
    """A minimal client of the API server, which acts as `user`."""

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
    """A client of the API server with the official package `kubernetes`, which acts as `user`."""

    def __init__(self, plane: ControlPlane, user: str, namespace: str) -> None:
        configuration = client.Configuration(host=plane.server, ssl_ca_cert=str(plane.authority.certificate))
        configuration.api_key["BearerToken"] = f"Bearer {plane.token(user)}"
        configuration.connection_pool_maxsize = AT_ONCE
        self._client = client.ApiClient(configuration)
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


async def run_concurrently(asked: Sequence[Callable[[], Awaitable[object]]]) -> float:
    """Make all calls, `AT_ONCE` at a time, and return the seconds that they took."""
    waiting = list(reversed(asked))

    async def work() -> None:
        while waiting:
            await waiting.pop()()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return time.perf_counter() - began


def read_processor_seconds(process: psutil.Process) -> float:
    """Return the processor seconds since the start of the process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def play(plane: ControlPlane, work: Work, execution: str, *, running: bool) -> None:
    """Write what the operator and the kubelets write for a job: four pods and the statuses.

    If `running` is false, the containers are still being created.
    """
    path = work.build_path(execution)
    job = plane.admin.get(path)
    assert job is not None
    template = _find_template(plane, work, job)
    for role, index in work.kind.replicas:
        pod = plane.admin.create(_build_pod(work.kind, job, (role, index), template))
        own = f"/api/v1/namespaces/{work.namespace}/pods/{pod['metadata']['name']}/status"
        plane.admin.patch(own, {"status": build_pod_status(work.kind, running=running)})
    plane.admin.patch(f"{path}/status", {"status": build_job_status(work.kind, running=running)})


def _find_template(plane: ControlPlane, work: Work, job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the pod template of a PyTorchJob; for a TrainJob, that of its runtime when the job owns it."""
    if not work.kind.prerequisites:
        found: Mapping[str, Any] = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
        return found
    meta = job["metadata"]
    plural = work.kind.prerequisites.rpartition("/")[2]
    path = f"{work.kind.build_path(meta['namespace']).rpartition('/')[0]}/{plural}/{meta['name']}"

    def is_owned() -> bool:
        return bool((plane.admin.get(path) or {"metadata": {}})["metadata"].get("ownerReferences"))

    wait_until(is_owned, 10, lambda: str(plane.admin.get(path)))
    (nodes,) = (plane.admin.get(path) or {})["spec"]["template"]["spec"]["replicatedJobs"]
    template: Mapping[str, Any] = nodes["template"]["spec"]["template"]
    return template


class Copies:
    """Copies of the job and pods of the execution `pattern`, whose name is a letter and a number."""

    def __init__(self, etcd: Etcd, work: Work, pattern: str) -> None:
        self._etcd, self._work, self._pattern = etcd, work, pattern
        kinds = [each for each in (work.kind.key, work.kind.prerequisites, "pods") if each]
        self._made = {
            key: value for each in kinds for key, value in etcd.list_patterns(each, pattern).items()
        }
        assert len(self._made) == len(kinds) + 3, f"a job and four pods, not {list(self._made)}"

    def build_name(self, number: int) -> str:
        """Return the name of the execution of a copy."""
        return f"{self._pattern[0]}{number:07}"

    def make(self, numbers: range) -> None:
        """Write all objects of the copies with these numbers into etcd."""
        self._etcd.copy(self._made, self._build_replacements, numbers)

    def move_masters(self, numbers: range) -> None:
        """Write the first pod of these copies again, on another node."""
        first = self._work.kind.build_pod_name("", *self._work.kind.replicas[0]).encode()
        masters = {key: value for key, value in self._made.items() if first in key}
        self._etcd.copy(
            masters, lambda number: {**self._build_replacements(number), _NODE: f"{_NODE[:-1]}2"}, numbers
        )

    def _build_replacements(self, number: int) -> Mapping[str, str]:
        name = self.build_name(number)
        before, run = self._work.run(self._pattern), self._work.run(name)
        return {
            names.compute_identity(before.output_prefix): names.compute_identity(run.output_prefix),
            self._work.build_job_name(self._pattern): self._work.build_job_name(name),
            self._pattern: name,
            **{uid: f"{number:08x}{uid[8:]}" for uid in list_uids(self._made.values())},
        }


def build_pod_status(kind: JobKind, *, running: bool) -> Mapping[str, Any]:
    now = _format_now()
    state = {"running": {"startedAt": now}} if running else {"waiting": {"reason": "ContainerCreating"}}
    status = {"name": kind.container, "image": "train:1", "imageID": "", "restartCount": 0, "ready": running}
    return {
        "phase": "Running" if running else "Pending",
        "startTime": now,
        "conditions": [
            {"type": each, "status": str(running), "lastTransitionTime": now}
            for each in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [{**status, "state": state}],
    }


def build_job_status(kind: JobKind, *, running: bool) -> Mapping[str, Any]:
    """Return the status that the operator writes."""
    status = kind.build_status(*(["Running"] if running else []), began=_format_now())
    active = {"Master": {"active": 1}, "Worker": {"active": 3}}
    return {**status, "replicaStatuses": active} if kind.has_conditions else status


def _build_pod(
    kind: JobKind, job: Mapping[str, Any], replica: tuple[str, int], template: Mapping[str, Any]
) -> dict[str, Any]:
    meta, template_metadata = job["metadata"], template.get("metadata", {})
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": kind.build_pod_name(meta["name"], *replica),
            "namespace": meta["namespace"],
            "labels": {**template_metadata.get("labels", {}), **kind.build_labels(meta["name"], *replica)},
            "annotations": template_metadata.get("annotations", {}),
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {**template["spec"], "nodeName": _NODE},
    }


def _format_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
