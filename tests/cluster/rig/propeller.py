"""The real FlytePropeller, and workflows for it: from what flytekit serializes to what a user is shown."""

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
from types import TracebackType
from typing import Any, Final

from flyteidl.core import literals_pb2, workflow_closure_pb2
from flytekit.configuration import Image, ImageConfig, SerializationSettings
from flytekit.core.context_manager import FlyteContextManager
from flytekit.core.type_engine import TypeEngine
from flytekit.core.workflow import WorkflowBase
from flytekit.models.admin.workflow import WorkflowSpec
from flytekit.models.literals import LiteralMap
from flytekit.models.task import TaskSpec
from flytekit.tools.translator import get_serializable
from propeller.wire import CONNECTOR

from rig.control_plane import HERE, PROPELLER, ControlPlane, dumped, free_ports
from rig.place import LOOPBACK
from rig.process import until
from rig.recorder import Recorder
from rig.stores import Folder, Store
from rig.tools import tool

PROJECT: Final = "project"
DOMAIN: Final = "development"
NAMESPACE: Final = f"{PROJECT}-{DOMAIN}"
IMAGE: Final = "image:1"
"""Of tasks that name none."""
TERMINATED: Final = "termination-status"
"""The label of an execution with which propeller is done."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What differs from one propeller to the next."""

    connector: str = ""
    """``host:port`` of the backend; empty: Flyte's own plugin does PyTorchJobs."""
    resync_seconds: int = 5
    """How often is polled; propeller takes no less than 5."""
    domain: str = DOMAIN
    """Of its executions. Two propellers at a time want two: each looks at its own and no others."""
    plugins: Mapping[str, Any] = field(default_factory=dict)
    """Further sections of ``plugins``."""
    store: Store | None = None
    """Where it writes; None: a folder of its own."""


@dataclass
class Execution:
    """One run of a workflow."""

    name: str
    workflow: WorkflowBase
    outputs_at: str
    """Where in the store the workflow's last node writes."""
    created: float
    """When its object was made, in seconds of `time.time`."""


class Propeller:
    """A propeller and its recorder; a context that starts and ends them."""

    def __init__(self, plane: ControlPlane, folder: Path, options: Options) -> None:
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
            # Beside the recorder and the backend, which are ours.
            LOOPBACK,
        )

    def __enter__(self) -> "Propeller":
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.recorder)
            stack.enter_context(self.process)
            path = "/apis/flyte.lyft.com/v1alpha1/flyteworkflows"
            self.process.wait_until(lambda: self._plane.admin.ask("GET", path).is_success)
            self._stack = stack.pop_all()
        self._plane.namespace(self.namespace)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def start(
        self,
        workflow: WorkflowBase,
        image: str = IMAGE,
        annotations: Mapping[str, str] | None = None,
        **inputs: Any,
    ) -> Execution:
        """Have a workflow run; the annotations go to all that it makes."""
        name = f"f{uuid.uuid4().hex[:19]}"
        context = FlyteContextManager.current_context()
        literals = TypeEngine.dict_to_literal_map(context, inputs, workflow.python_interface.inputs)
        asked = {
            "closure": _encoded(_closure(workflow, image).SerializeToString()),
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
        self._plane.admin.create(json.loads(compiled.stdout))
        outputs = f"metadata/{self.namespace}-{name}/end-node/data/0/outputs.pb"
        return Execution(name, workflow, outputs, created)

    def found(self, execution: Execution) -> dict[str, Any] | None:
        """Its object in the cluster; None once propeller has let it go."""
        return self._plane.admin.get(self._path(execution))

    def wait(self, execution: Execution, seconds: float = 120) -> dict[str, Any]:
        """Until it has ended; gives its object."""

        def ended() -> bool:
            found = self.found(execution)
            return found is None or TERMINATED in found["metadata"].get("labels", {})

        until(ended, seconds, lambda: f"no end of {execution.name}: {self.recorder.tasks(execution.name)}")
        found = self.found(execution)
        assert found is not None, "somebody has deleted it"
        return found

    def until_shown(self, execution: Execution, phase: str, seconds: float = 60) -> None:
        """Until a task of it was shown in this phase."""
        until(
            lambda: phase in [each.phase for each in self.recorder.tasks(execution.name)],
            seconds,
            lambda: f"{execution.name} was never {phase}: {self.recorder.tasks(execution.name)}",
        )

    def attempts(self, execution: Execution) -> int:
        """How many attempts its tasks have had in all."""
        return len({(each.node, each.attempt) for each in self.recorder.tasks(execution.name)})

    def abort(self, execution: Execution) -> None:
        """As when somebody terminates the execution."""
        self._plane.admin.delete(self._path(execution))

    def outputs(self, execution: Execution) -> Mapping[str, Any]:
        """What the workflow gave, as its author's types."""
        document = literals_pb2.LiteralMap.FromString(self.store.read(execution.outputs_at))
        literals = LiteralMap.from_flyte_idl(document)
        context = FlyteContextManager.current_context()
        types = execution.workflow.python_interface.outputs
        return TypeEngine.literal_map_to_kwargs(context, literals, types)

    def _path(self, execution: Execution) -> str:
        return f"/apis/flyte.lyft.com/v1alpha1/namespaces/{self.namespace}/flyteworkflows/{execution.name}"

    def _configuration(self, profiling: int) -> Mapping[str, Any]:
        options = self._options
        ours = bool(options.connector)
        enabled = ["container", "sidecar", "connector-service" if ours else "pytorch"]
        seconds = "1s"
        return {
            "propeller": {
                "kube-config": str(self._plane.kubeconfig(PROPELLER)),
                "limit-namespace": self.namespace,
                "metadata-prefix": "metadata",
                "rawoutput-prefix": f"{self.store.uri}/raw",
                "prof-port": profiling,
                "workers": 4,
                "workflow-reeval-duration": seconds,
                "downstream-eval-duration": seconds,
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
                **({"connector-service": _connector(options)} if ours else {}),
                **options.plugins,
            },
        }


def _connector(options: Options) -> Mapping[str, Any]:
    """The chart's own words, but that tests are in more of a hurry."""
    connector = {**CONNECTOR["defaultConnector"], "endpoint": options.connector}
    caching = {**CONNECTOR["webApi"]["caching"], "resyncInterval": f"{options.resync_seconds}s"}
    return {**CONNECTOR, "defaultConnector": connector, "webApi": {**CONNECTOR["webApi"], "caching": caching}}


def _closure(workflow: WorkflowBase, image: str) -> workflow_closure_pb2.WorkflowClosure:
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
        workflow=specification.template.to_flyte_idl(),
        tasks=[each.template.to_flyte_idl() for each in tasks],
    )


def _encoded(message: bytes) -> str:
    return base64.b64encode(message).decode()


def error_of(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The error of an execution that has failed, as its object says it."""
    error: Mapping[str, Any] = found.get("status", {}).get("error", {})
    return error
