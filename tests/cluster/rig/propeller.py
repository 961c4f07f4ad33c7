"""The real FlytePropeller: runs tasks as workflows, and collects the events that users would see."""

import base64
import contextlib
import json
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc
from flyteidl.admin import event_pb2
from flyteidl.core import execution_pb2, literals_pb2, workflow_closure_pb2
from flyteidl.service import admin_pb2_grpc
from flytekit.configuration import Image, ImageConfig, SerializationSettings
from flytekit.core.base_task import PythonTask
from flytekit.core.context_manager import FlyteContextManager
from flytekit.core.type_engine import TypeEngine
from flytekit.core.workflow import ImperativeWorkflow
from flytekit.models.admin.workflow import WorkflowSpec
from flytekit.models.literals import LiteralMap
from flytekit.models.task import TaskSpec
from flytekit.tools.translator import get_serializable
from propeller.wire import CONNECTOR

from rig.control_plane import HERE, PROPELLER, dumped, free_ports
from rig.process import LOOPBACK, run_command, wait_for, wait_until
from rig.stores import Folder, Store
from rig.tools import tool

PROJECT = "project"
DOMAIN = "development"
NAMESPACE = f"{PROJECT}-{DOMAIN}"
IMAGE = "image:1"  # The image of tasks that do not name one.
_TERMINATED = "termination-status"  # The label that propeller sets on a finished execution.


@dataclass(frozen=True, kw_only=True)
class PropellerOptions:
    connector: str = ""  # The `host:port` of the backend. If empty, Flyte's own plugin handles PyTorchJobs.
    domain: str = DOMAIN
    """The domain of the executions. Propellers that run at the same time need different domains."""
    plugins: Mapping[str, Any] = field(default_factory=dict)
    """Further sections of `plugins` in the configuration."""
    store: Store | None = None  # The output store; None for a local folder.


@dataclass
class RealExecution:
    name: str
    task: PythonTask
    outputs_at: str  # The path in the store that the end node of the workflow writes to.
    created: float  # The creation time of the FlyteWorkflow, in seconds since the epoch.


@dataclass(frozen=True, kw_only=True)
class RecordedPhase:
    node: str
    attempt: int
    phase: str
    reason: str
    message: str  # The error message; empty without an error.
    kind: str  # The kind of the error, `USER` or `SYSTEM`.
    at: float  # The time of arrival, in seconds since the epoch.


class Recorder(admin_pb2_grpc.AdminServiceServicer):
    """The event methods of AdminService; a context manager that serves them on loopback."""

    def __init__(self):
        self._lock = threading.Lock()
        self._tasks = []
        self._workflows = []
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *_):
        self._server.stop(None).wait()

    def tasks(self, execution):
        """Return the task events of an execution, in order of arrival."""
        with self._lock:
            return [
                _decode_event(each, at)
                for at, each in self._tasks
                if each.parent_node_execution_id.execution_id.name == execution
            ]

    def workflow(self, execution):
        """Return the phases of an execution, in order of arrival."""
        name = execution_pb2.WorkflowExecution.Phase.Name
        with self._lock:
            return [name(each.phase) for each in self._workflows if each.execution_id.name == execution]

    # ---- gRPC methods, which have the names of the service definition

    def CreateTaskEvent(self, request, context):  # noqa: N802
        with self._lock:
            self._tasks.append((time.time(), request.event))
        return event_pb2.TaskExecutionEventResponse()

    def CreateNodeEvent(self, request, context):  # noqa: N802
        """Ignore an event of a node."""
        return event_pb2.NodeExecutionEventResponse()

    def CreateWorkflowEvent(self, request, context):  # noqa: N802
        with self._lock:
            self._workflows.append(request.event)
        return event_pb2.WorkflowExecutionEventResponse()


class RealPropeller:
    """A propeller and its event recorder; a context manager that starts and stops them."""

    def __init__(self, plane, folder, options):
        self.api = plane.admin
        self._plane = plane
        self._folder = folder
        self._options = options
        self.namespace = f"{PROJECT}-{options.domain}"
        self.recorder = Recorder()
        self._stack = contextlib.ExitStack()
        self.store = options.store or Folder(folder / "store")
        (profiling,) = free_ports(1)
        config = dumped(self._configuration(profiling), folder / "propeller.yaml")
        self.process = plane.process(
            "propeller",
            (f"--config={config}",),
            {"POD_NAMESPACE": "flyte", "POD_NAME": "propeller", "HOME": str(folder)},
            # The recorder and the backend listen on this machine, too.
            LOOPBACK,
        )

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.recorder)
            stack.enter_context(self.process)
            path = "/apis/flyte.lyft.com/v1alpha1/flyteworkflows"
            self.process.wait_until(lambda: self.api.request("GET", path).is_success)
            self._stack = stack.pop_all()
        self._plane.namespace(self.namespace)
        return self

    def __exit__(self, *_):
        self._stack.close()

    def start(self, task, image=IMAGE, annotations=None, **inputs):
        """Start an execution of a task; `annotations` are set on all objects that it creates."""
        name = f"f{uuid.uuid4().hex[:19]}"
        context = FlyteContextManager.current_context()
        literals = TypeEngine.dict_to_literal_map(context, inputs, task.python_interface.inputs)
        asked = {
            "closure": _encoded(_closure(task, image).SerializeToString()),
            "inputs": _encoded(literals.to_flyte_idl().SerializeToString()),
            "project": PROJECT,
            "domain": self._options.domain,
            "name": name,
            "namespace": self.namespace,
            "output_data": f"{self.store.uri}/raw",
            "service_account": "default",
            "annotations": dict(annotations or {}),
        }
        compiled = run_command(tool("propeller"), "compile", input=json.dumps(asked))
        assert compiled.returncode == 0, compiled.stderr
        created = time.time()
        self.api.create(json.loads(compiled.stdout))
        outputs = f"metadata/{self.namespace}-{name}/end-node/data/0/outputs.pb"
        return RealExecution(name, task, outputs, created)

    def has_ended(self, execution):
        found = self.api.get(self.path(execution))
        return found is None or _TERMINATED in found["metadata"].get("labels", {})

    def wait(self, execution):
        """Wait until the execution has ended, and return its FlyteWorkflow."""
        tasks = self.recorder.tasks
        wait_until(lambda: self.has_ended(execution), 240, lambda: f"no end: {tasks(execution.name)}")
        return self.api.get_existing(self.path(execution))

    def wait_for_success(self, execution):
        """Wait until the execution has ended. Fail the test unless it has succeeded."""
        found = self.wait(execution)
        assert found["status"]["phase"] == 3, found["status"].get("error")

    def wait_for_failure(self, execution):
        """Wait until the execution has ended. Fail the test unless it has failed, and return its error."""
        found = self.wait(execution)
        assert found["status"]["phase"] == 5
        return str(found["status"]["error"])

    def wait_for_outputs(self, execution):
        """Wait until the execution has succeeded, and return its outputs."""
        self.wait_for_success(execution)
        return self.outputs(execution)

    def until_shown(self, execution, phase, seconds=60):
        """Wait until a task of the execution has reported this phase."""
        wait_for(
            lambda: self.recorder.tasks(execution.name),
            lambda shown: phase in [each.phase for each in shown],
            seconds,
        )

    def attempts(self, execution):
        return len({(each.node, each.attempt) for each in self.recorder.tasks(execution.name)})

    def abort(self, execution):
        """Delete the FlyteWorkflow, as flyteadmin does when a user aborts the execution."""
        self.api.delete(self.path(execution))

    def remove(self, execution):
        """Delete the FlyteWorkflow without waiting for propeller, which may be down."""
        self.api.patch(self.path(execution), {"metadata": {"finalizers": None}})
        self.api.delete(self.path(execution))

    def outputs(self, execution):
        document = literals_pb2.LiteralMap.FromString(self.store.read(execution.outputs_at))
        literals = LiteralMap.from_flyte_idl(document)
        context = FlyteContextManager.current_context()
        types = execution.task.python_interface.outputs
        return TypeEngine.literal_map_to_kwargs(context, literals, types)

    def path(self, execution):
        return f"/apis/flyte.lyft.com/v1alpha1/namespaces/{self.namespace}/flyteworkflows/{execution.name}"

    def _configuration(self, profiling):
        options = self._options
        ours = bool(options.connector)
        enabled = ["container", "sidecar", "connector-service" if ours else "pytorch"]
        return {
            "propeller": {
                "kube-config": str(self._plane.kubeconfig(PROPELLER)),
                "limit-namespace": self.namespace,
                "metadata-prefix": "metadata",
                "rawoutput-prefix": f"{self.store.uri}/raw",
                "prof-port": profiling,
                "workers": 4,
                "workflow-reeval-duration": "1s",
                "downstream-eval-duration": "1s",
                "max-workflow-retries": 10,
                "create-flyteworkflow-crd": True,
                "enable-admin-launcher": False,
                "leader-election": {"enabled": False},
                "kube-client-config": {"qps": 100, "burst": 100, "timeout": "30s"},
                "node-config": {"default-max-attempts": 1},
            },
            "storage": self.store.section,
            "event": {"type": "admin", "rate": 500, "capacity": 1000},
            "admin": {"endpoint": f"dns:///{HERE}:{self.recorder.port}", "insecure": True},
            "catalog-cache": {"type": "noop"},
            "logger": {"level": 4},
            "tasks": {
                "task-plugins": {
                    "enabled-plugins": enabled,
                    "default-for-task-types": {
                        "container": "container",
                        "sidecar": "sidecar",
                        "python-task": "container",
                        "pytorch": enabled[-1],
                    },
                }
            },
            "plugins": {
                **({"connector-service": _connector(options.connector)} if ours else {}),
                **options.plugins,
            },
        }


def _connector(endpoint):
    """Return the connector configuration of our chart, with the shortest polling interval of propeller."""
    connector = {**CONNECTOR["defaultConnector"], "endpoint": endpoint}
    caching = {**CONNECTOR["webApi"]["caching"], "resyncInterval": "5s"}
    return {**CONNECTOR, "defaultConnector": connector, "webApi": {**CONNECTOR["webApi"], "caching": caching}}


def _closure(task, image):
    workflow = ImperativeWorkflow(name=f"workflow.{task.name}")
    inputs = task.python_interface.inputs.items()
    values = {name: workflow.add_workflow_input(name, kind) for name, kind in inputs}
    node = workflow.add_entity(task, **values)
    for name in task.python_interface.outputs:
        workflow.add_workflow_output(name, node.outputs[name])
    settings = SerializationSettings(
        project=PROJECT,
        domain=DOMAIN,
        version="v1",
        image_config=ImageConfig(default_image=Image.look_up_image_info("default", image)),
    )
    entities = OrderedDict()
    specification = get_serializable(entities, settings, workflow)
    assert isinstance(specification, WorkflowSpec)
    tasks = [each for each in entities.values() if isinstance(each, TaskSpec)]
    return workflow_closure_pb2.WorkflowClosure(
        workflow=specification.template.to_flyte_idl(), tasks=[each.template.to_flyte_idl() for each in tasks]
    )


def _encoded(message):
    return base64.b64encode(message).decode()


def list_owned(api, path, execution):
    return api.items(path, labelSelector=f"execution-id={execution.name}")


def _decode_event(event, at):
    has_error = event.WhichOneof("output_result") == "error"
    kind = execution_pb2.ExecutionError.ErrorKind.Name(event.error.kind) if has_error else ""
    # Newer propellers send a list of reasons.
    reasons = [each.reason for each in event.reasons] or [event.reason]
    return RecordedPhase(
        node=event.parent_node_execution_id.node_id,
        attempt=event.retry_attempt,
        phase=execution_pb2.TaskExecution.Phase.Name(event.phase),
        reason="\n".join(reasons),
        message=event.error.message if has_error else "",
        kind=kind,
        at=at,
    )
