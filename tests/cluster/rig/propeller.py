"""The real FlytePropeller: runs tasks as workflows, and collects the events that users would see."""

import base64
import contextlib
import json
import subprocess
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from flyteidl.core import literals_pb2, workflow_closure_pb2
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

from rig.api import Api, Manifest
from rig.control_plane import HERE, PROPELLER, ControlPlane, dumped, free_ports
from rig.place import LOOPBACK
from rig.process import wait_for, wait_until
from rig.recorder import Recorder
from rig.stores import Folder, Store
from rig.tools import tool

PROJECT: Final = "project"
DOMAIN: Final = "development"
NAMESPACE: Final = f"{PROJECT}-{DOMAIN}"
IMAGE: Final = "image:1"
"""The image of tasks that do not name one."""
_TERMINATED: Final = "termination-status"
"""The label that propeller sets on a finished execution."""


@dataclass(frozen=True, kw_only=True)
class PropellerOptions:
    """Properties that differ between propellers."""

    connector: str = ""
    """The `host:port` of the backend. If empty, Flyte's own plugin handles PyTorchJobs."""
    domain: str = DOMAIN
    """The domain of the executions. Propellers that run at the same time need different domains."""
    plugins: Mapping[str, Any] = field(default_factory=dict)
    """Further sections of `plugins` in the configuration."""
    store: Store | None = None
    """The output store; None for a local folder."""


@dataclass
class RealExecution:
    """One execution of a workflow with one task."""

    name: str
    task: PythonTask
    outputs_at: str
    """The path in the store that the end node of the workflow writes to."""
    created: float
    """The creation time of the FlyteWorkflow, in seconds since the epoch."""


class RealPropeller:
    """A propeller and its event recorder; a context manager that starts and stops them."""

    def __init__(self, plane: ControlPlane, folder: Path, options: PropellerOptions) -> None:
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

    def __enter__(self) -> "RealPropeller":
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.recorder)
            stack.enter_context(self.process)
            path = "/apis/flyte.lyft.com/v1alpha1/flyteworkflows"
            self.process.wait_until(lambda: self.api.request("GET", path).is_success)
            self._stack = stack.pop_all()
        self._plane.namespace(self.namespace)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(
        self,
        task: PythonTask,
        image: str = IMAGE,
        annotations: Mapping[str, str] | None = None,
        **inputs: Any,
    ) -> RealExecution:
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
        compiled = subprocess.run(
            [tool("propeller"), "compile"],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=False,
        )
        assert compiled.returncode == 0, compiled.stderr
        created = time.time()
        self.api.create(json.loads(compiled.stdout))
        outputs = f"metadata/{self.namespace}-{name}/end-node/data/0/outputs.pb"
        return RealExecution(name, task, outputs, created)

    def has_ended(self, execution: RealExecution) -> bool:
        found = self.api.get(self.path(execution))
        return found is None or _TERMINATED in found["metadata"].get("labels", {})

    def wait(self, execution: RealExecution) -> dict[str, Any]:
        """Wait until the execution has ended, and return its FlyteWorkflow."""
        tasks = self.recorder.tasks
        wait_until(lambda: self.has_ended(execution), 240, lambda: f"no end: {tasks(execution.name)}")
        found = self.api.get(self.path(execution))
        assert found is not None, "it was deleted"
        return found

    def wait_for_success(self, execution: RealExecution) -> None:
        """Wait until the execution has ended. Fail the test unless it has succeeded."""
        found = self.wait(execution)
        assert found["status"]["phase"] == 3, found["status"].get("error")

    def wait_for_failure(self, execution: RealExecution) -> str:
        """Wait until the execution has ended. Fail the test unless it has failed, and return its error."""
        found = self.wait(execution)
        assert found["status"]["phase"] == 5
        return str(found["status"]["error"])

    def wait_for_outputs(self, execution: RealExecution) -> Mapping[str, Any]:
        """Wait until the execution has succeeded, and return its outputs."""
        self.wait_for_success(execution)
        return self.outputs(execution)

    def until_shown(self, execution: RealExecution, phase: str, seconds: float = 60) -> None:
        """Wait until a task of the execution has reported this phase."""
        wait_for(
            lambda: self.recorder.tasks(execution.name),
            lambda shown: phase in [each.phase for each in shown],
            seconds,
        )

    def attempts(self, execution: RealExecution) -> int:
        """Return the total number of attempts of all tasks."""
        return len({(each.node, each.attempt) for each in self.recorder.tasks(execution.name)})

    def abort(self, execution: RealExecution) -> None:
        """Delete the FlyteWorkflow, as flyteadmin does when a user aborts the execution."""
        self.api.delete(self.path(execution))

    def remove(self, execution: RealExecution) -> None:
        """Delete the FlyteWorkflow without waiting for propeller, which may be down."""
        self.api.patch(self.path(execution), {"metadata": {"finalizers": None}})
        self.api.delete(self.path(execution))

    def outputs(self, execution: RealExecution) -> Mapping[str, Any]:
        """Return the outputs of the workflow as Python values."""
        document = literals_pb2.LiteralMap.FromString(self.store.read(execution.outputs_at))
        literals = LiteralMap.from_flyte_idl(document)
        context = FlyteContextManager.current_context()
        types = execution.task.python_interface.outputs
        return TypeEngine.literal_map_to_kwargs(context, literals, types)

    def path(self, execution: RealExecution) -> str:
        """Return the API path of the FlyteWorkflow of an execution."""
        return f"/apis/flyte.lyft.com/v1alpha1/namespaces/{self.namespace}/flyteworkflows/{execution.name}"

    def _configuration(self, profiling: int) -> Mapping[str, Any]:
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


def _connector(endpoint: str) -> Mapping[str, Any]:
    """Return the connector configuration of our chart, with the shortest polling interval of propeller."""
    connector = {**CONNECTOR["defaultConnector"], "endpoint": endpoint}
    caching = {**CONNECTOR["webApi"]["caching"], "resyncInterval": "5s"}
    return {**CONNECTOR, "defaultConnector": connector, "webApi": {**CONNECTOR["webApi"], "caching": caching}}


def _closure(task: PythonTask, image: str) -> workflow_closure_pb2.WorkflowClosure:
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
    entities: OrderedDict[Any, Any] = OrderedDict()
    specification = get_serializable(entities, settings, workflow)
    assert isinstance(specification, WorkflowSpec)
    tasks: Sequence[TaskSpec] = [each for each in entities.values() if isinstance(each, TaskSpec)]
    return workflow_closure_pb2.WorkflowClosure(
        workflow=specification.template.to_flyte_idl(), tasks=[each.template.to_flyte_idl() for each in tasks]
    )


def _encoded(message: bytes) -> str:
    return base64.b64encode(message).decode()


def list_owned(api: Api, path: str, execution: RealExecution) -> Sequence[Manifest]:
    """Return the objects of an execution at an API path."""
    return api.items(path, labelSelector=f"execution-id={execution.name}")
