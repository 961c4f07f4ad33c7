"""A client that calls the server as propeller does, without a workflow."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from flyteidl.admin import agent_pb2 as admin
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.json_format import ParseDict
from propeller.wire import SERVICE_CONFIG, Wire

from backend_plugin.core import job_ref
from rig.process import wait_for

TRANSIENT = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"})  # The errors that propeller retries.


@dataclass(kw_only=True)
class CallerAttempt:
    execution: str
    number: int
    prefix: str
    meta: bytes = b""  # The job reference; empty until the task is created.

    @property
    def job(self):
        """The name of the job; empty if the server rejected the task."""
        return job_ref.decode(self.meta).name

    @property
    def uid(self):
        return job_ref.decode(self.meta).uid


@dataclass(frozen=True, kw_only=True)
class Said:
    phase: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Shape:
    workers: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)
    run_policy: Mapping[str, Any] = field(default_factory=dict)
    gpus: int = 0  # GPUs per replica.
    sidecar_cpu: str = ""
    """The CPU request of a native sidecar; empty if there is none. The trainer requests one CPU."""
    init_cpu: str = ""  # The CPU request of an init container; empty if there is none.
    custom: Mapping[str, Any] = field(default_factory=dict)  # Further keys of the `custom` field.


_AGAIN = {"replicas": 1, "restartPolicy": "RESTART_POLICY_ON_FAILURE"}
RESTARTING = Shape(custom={"masterReplicas": _AGAIN, "workerReplicas": _AGAIN})
"""A job whose operator replaces lost pods."""


class Caller:
    """A connection to a server, for tasks in one namespace that write to `store`; a context manager.

    Args:
        again: Retry calls while the server is unavailable, as propeller does with our chart.
        tries: The number of times that a call is sent if it times out. Propeller repeats it, too.
    """

    def __init__(self, endpoint, store, namespace, *, again=True, tries=1):
        self.wire = Wire(endpoint, service_config=SERVICE_CONFIG if again else None)
        self._store = store
        self._namespace = namespace
        self._tries = tries

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.wire.close()

    def attempt(self, number=0, execution=""):
        """Return an attempt that is not created yet."""
        execution = execution or f"f{uuid.uuid4().hex[:12]}"
        prefix = (self._store / execution / "n0" / "data" / str(number)).as_uri()
        return CallerAttempt(execution=execution, number=number, prefix=prefix)

    def create(self, attempt=None, shape=None):
        """Create the task of an attempt. Raises the error of the call."""
        attempt = attempt or self.attempt()
        request = self._request(attempt, shape or Shape())
        attempt.meta = self._send(lambda: self.wire.create(request))
        return attempt

    def try_to_create(self, attempt, shape=None):
        """True if the task is created; False if the call has an error that propeller retries."""
        try:
            self.create(attempt, shape)
        except grpc.RpcError as error:
            if code_of(error) not in TRANSIENT:
                raise
            return False
        return True

    def get(self, attempt):
        resource = self._send(lambda: self.wire.get(attempt.meta, attempt.prefix))
        return Said(phase=TaskExecution.Phase.Name(resource.phase), message=resource.message)

    def wait_for(self, attempt, *phases, part=""):
        """Wait until an attempt has one of these phases, with `part` in its message, and return both."""
        return wait_for(lambda: self.get(attempt), lambda said: said.phase in phases and part in said.message)

    def delete(self, attempt):
        self._send(lambda: self.wire.delete(attempt.meta))

    def _send(self, call):
        for _ in range(1, self._tries):
            try:
                return call()
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise
        return call()

    def succeeded(self, attempt):
        """Write the outputs that the pod of a successful task writes."""
        folder = Path(attempt.prefix.removeprefix("file://"))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "outputs.pb").write_bytes(b"")

    def _request(self, attempt, shape):
        execution = {"project": "p", "domain": "d", "name": attempt.execution}
        metadata = {
            "taskExecutionId": {
                "nodeExecutionId": {"nodeId": "n0", "executionId": execution},
                "retryAttempt": attempt.number,
            },
            "namespace": self._namespace,
            "labels": {"execution-id": attempt.execution},
            "annotations": dict(shape.annotations),
        }
        return admin.CreateTaskRequest(
            template=_template(shape),
            output_prefix=attempt.prefix,
            task_execution_metadata=ParseDict(metadata, admin.TaskExecutionMetadata()),
        )


def _template(shape):
    custom = {
        "workerReplicas": {"replicas": shape.workers},
        "masterReplicas": {"replicas": 1},
        **shape.custom,
    }
    if shape.run_policy:
        custom["runPolicy"] = dict(shape.run_policy)
    fields = {"type": "pytorch", "taskTypeVersion": 1, "custom": custom}
    runs = {"image": "image:1", "args": ["pyflyte-execute", "--output-prefix", "o"]}
    if shape.sidecar_cpu or shape.init_cpu:
        limits = {"nvidia.com/gpu": str(shape.gpus), "cpu": "1", "memory": "1Gi"}
        beside = {"sidecar": (shape.sidecar_cpu, {"restartPolicy": "Always"}), "init": (shape.init_cpu, {})}
        spec = {
            "containers": [{**runs, "name": "main", "resources": {"limits": limits}}],
            "initContainers": [
                {"name": name, "image": "image:1", "resources": {"requests": {"cpu": cpu}}, **fields}
                for name, (cpu, fields) in beside.items()
                if cpu
            ],
        }
        fields |= {"k8sPod": {"podSpec": spec}, "config": {"primary_container_name": "main"}}
        return ParseDict(fields, TaskTemplate())
    if shape.gpus:
        runs["resources"] = {"limits": [{"name": "GPU", "value": str(shape.gpus)}]}
    return ParseDict({**fields, "container": runs}, TaskTemplate())


def code_of(error):
    return str(error.code().name)
