"""Builds the requests that a connector receives for a task, and writes its inputs to the store.

Propeller renders only the arguments of a container task, but the whole spec of a pod task.
"""

import json
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from flyteidl.admin import agent_pb2
from flyteidl.core import literals_pb2, tasks_pb2
from flytekit.configuration import Image, ImageConfig, SerializationSettings
from flytekit.core.base_task import PythonTask
from flytekit.core.context_manager import FlyteContextManager
from flytekit.core.type_engine import TypeEngine
from flytekit.models.literals import LiteralMap
from flytekit.tools.translator import get_serializable
from google.protobuf.json_format import MessageToDict, ParseDict

PROJECT, DOMAIN, VERSION = "project", "development", "v1"
NODE = "n0"
# The requests that flyteadmin sets for a task without any.
PLATFORM = {"cpu": "500m", "memory": "1Gi"}


@dataclass(frozen=True, kw_only=True)
class TaskRequest:
    """A node of an execution, as propeller has it before the first attempt."""

    template: tasks_pb2.TaskTemplate
    inputs: literals_pb2.LiteralMap
    store: Path
    task: PythonTask | None = None
    """The task with the types of the outputs."""
    execution: str = field(default_factory=lambda: f"f{uuid.uuid4().hex[:19]}")

    @property
    def retries(self) -> int:
        return self.template.metadata.retries.retries

    @property
    def has_outputs(self) -> bool:
        return bool(self.template.interface.outputs.variables)

    @property
    def data(self) -> Path:
        folder = f"{PROJECT}-{DOMAIN}-{self.execution}"
        return self.store / "metadata" / "propeller" / folder / NODE / "data"

    def output(self, attempt: int) -> Path:
        """Return the directory of the output prefix of this attempt."""
        return self.data / str(attempt)

    def name(self, attempt: int) -> str:
        """Return the name that propeller gives to a pod of this attempt."""
        return f"{self.execution}-{NODE}-{attempt}"

    def raw(self, attempt: int) -> str:
        """Return the raw output prefix; its first folder has two characters, as propeller shards prefixes."""
        return (self.store / "ab" / self.name(attempt)).as_uri()

    @cached_property
    def _rendered(self) -> dict[str, Any]:
        return MessageToDict(self.template)

    def create(self, attempt: int) -> agent_pb2.CreateTaskRequest:
        template = _replaced(self._rendered, _in_json(self._placeholders(attempt)))
        if "k8sPod" in template:
            spec = template["k8sPod"]["podSpec"]
            template["k8sPod"]["podSpec"] = _finished(spec, self._variables(attempt))
        return agent_pb2.CreateTaskRequest(
            inputs=self.inputs,
            template=ParseDict(template, tasks_pb2.TaskTemplate()),
            output_prefix=self.output(attempt).as_uri(),
            task_execution_metadata=self._metadata(attempt),
        )

    def write_inputs(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        (self.data / "inputs.pb").write_bytes(self.inputs.SerializeToString())

    def _placeholders(self, attempt: int) -> dict[str, str]:
        before = f"{self.raw(attempt - 1)}/_flytecheckpoints" if attempt else '""'
        return {
            "{{.input}}": (self.data / "inputs.pb").as_uri(),
            "{{.outputPrefix}}": self.output(attempt).as_uri(),
            "{{.rawOutputDataPrefix}}": self.raw(attempt),
            "{{.checkpointOutputPrefix}}": f"{self.raw(attempt)}/_flytecheckpoints",
            "{{.prevCheckpointPrefix}}": before,
        }

    def _variables(self, attempt: int) -> dict[str, str]:
        task = self.template.id
        return {
            "FLYTE_INTERNAL_EXECUTION_WORKFLOW": f"{PROJECT}:{DOMAIN}:workflow",
            "FLYTE_INTERNAL_EXECUTION_ID": self.execution,
            "FLYTE_INTERNAL_EXECUTION_PROJECT": PROJECT,
            "FLYTE_INTERNAL_EXECUTION_DOMAIN": DOMAIN,
            "FLYTE_ATTEMPT_NUMBER": str(attempt),
            "FLYTE_INTERNAL_TASK_PROJECT": task.project,
            "FLYTE_INTERNAL_TASK_DOMAIN": task.domain,
            "FLYTE_INTERNAL_TASK_NAME": task.name,
            "FLYTE_INTERNAL_TASK_VERSION": task.version,
        }

    def _metadata(self, attempt: int) -> agent_pb2.TaskExecutionMetadata:
        metadata = agent_pb2.TaskExecutionMetadata(
            namespace=f"{PROJECT}-{DOMAIN}",
            k8s_service_account="default",
            labels={
                "execution-id": self.execution,
                "project": PROJECT,
                "domain": DOMAIN,
                "workflow-name": "workflow",
                "shard-key": "1",
                "node-id": NODE,
                "task-name": self.template.id.name.replace(".", "-").replace("_", "-"),
                "interruptible": "false",
            },
        )
        metadata.identity.k8s_service_account = "default"
        metadata.identity.execution_identity = "somebody"
        metadata.task_execution_id.task_id.CopyFrom(self.template.id)
        metadata.task_execution_id.retry_attempt = attempt
        node = metadata.task_execution_id.node_execution_id
        node.node_id = NODE
        node.execution_id.project, node.execution_id.domain = PROJECT, DOMAIN
        node.execution_id.name = self.execution
        return metadata

    def values(self, outputs: literals_pb2.LiteralMap) -> dict[str, Any]:
        """Return the outputs as Python values."""
        if self.task is None:
            return {}
        # flytekit does not open file URLs.
        read = _replaced(MessageToDict(outputs), {'"uri": "file://': '"uri": "'})
        literals = LiteralMap.from_flyte_idl(ParseDict(read, literals_pb2.LiteralMap()))
        context = FlyteContextManager.current_context()
        return TypeEngine.literal_map_to_kwargs(context, literals, self.task.python_interface.outputs)


def build_request(task: PythonTask, inputs: Mapping[str, Any], store: Path, **options: Any) -> TaskRequest:
    """Return a node for this task and these inputs. Keyword arguments are the image and other fields."""
    image = options.pop("image", "image:1")
    settings = SerializationSettings(
        project=PROJECT,
        domain=DOMAIN,
        version=VERSION,
        image_config=ImageConfig(default_image=Image.look_up_image_info("default", image)),
    )
    template = get_serializable(OrderedDict(), settings, task).template.to_flyte_idl()
    context = FlyteContextManager.current_context()
    literals = TypeEngine.dict_to_literal_map(context, dict(inputs), task.python_interface.inputs)
    return TaskRequest(template=template, inputs=literals.to_flyte_idl(), store=store, task=task, **options)


def _replaced(value: Any, replacements: Mapping[str, str]) -> Any:
    """Return the JSON value with these texts replaced."""
    text = json.dumps(value)
    for old, new in replacements.items():
        text = text.replace(old, new)
    return json.loads(text)


def _in_json(values: Mapping[str, str]) -> dict[str, str]:
    return {key: json.dumps(value)[1:-1] for key, value in values.items()}


def _finished(spec: dict[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the spec as ToK8sPodSpec returns it on a platform without plugin settings."""
    env = [{"name": name, "value": value} for name, value in variables.items()]
    containers = [_container(container, env) for container in spec["containers"]]
    defaults = {"restartPolicy": "Never", "serviceAccountName": "default", "affinity": {}}
    return {**defaults, **spec, "containers": containers}


def _container(container: dict[str, Any], env: list[dict[str, str]]) -> dict[str, Any]:
    kept = {key: value for key, value in container.items() if key != "command" or value}
    declared = container.get("resources", {})
    asked_for = {**PLATFORM, **declared.get("limits", {}), **declared.get("requests", {})}
    resources = {"requests": asked_for, "limits": {**asked_for, **declared.get("limits", {})}}
    return {
        **kept,
        "env": [*container.get("env", ()), *env],
        "resources": resources,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
