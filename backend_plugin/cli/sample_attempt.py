"""Reads the task that a command's options name, and builds an example attempt (one run of the task).

FlytePropeller would add values such as paths. In an example attempt, these values are constants, so that the
attempt depends only on the options of the command.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote

import rich_click as click
from flyteidl.admin.agent_pb2 import TaskExecutionMetadata
from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.cli import cluster_options, task_files
from backend_plugin.cli.command_errors import Misused
from backend_plugin.core.job import Attempt
from backend_plugin.shell import create_request

Command = TypeVar("Command", bound=Callable[..., Any])

_NODE: Final = "n0"
_STORE: Final = "s3://bucket"
_PLACEHOLDER: Final = re.compile(r"\{\{\s*[.$](?P<name>[\w.]+)\s*\}\}")
_INPUTS: Final = "inputs."


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The project, domain, namespace and execution of an attempt."""

    project: str = "project"
    domain: str = "development"
    namespace: str = ""
    """The namespace; empty for Flyte's default, ``PROJECT-DOMAIN``."""
    execution: str = "example"

    @property
    def full_namespace(self) -> str:
        """The namespace of the job: `namespace`, or Flyte's default ``PROJECT-DOMAIN`` if that is empty."""
        return self.namespace or f"{self.project}-{self.domain}"

    @property
    def data_directory(self) -> str:
        """The directory of the Flyte node's inputs and outputs, relative to the root of the object store."""
        return f"metadata/propeller/{self.project}-{self.domain}-{self.execution}/{_NODE}/data"

    def build_variables(self, store: str, attempt: int = 0) -> Mapping[str, str]:
        """Return FlytePropeller's template variables by lower-case name, with paths below the URI `store`."""
        name = quote(f"{self.execution}-{_NODE}")
        raw, before = (f"{store}/raw/{name}-{number}" for number in (attempt, attempt - 1))
        folder = f"{store}/{quote(self.data_directory)}"
        return {
            "input": f"{folder}/inputs.pb",
            "inputprefix": folder,
            "outputprefix": f"{folder}/{attempt}",
            "rawoutputdataprefix": raw,
            "checkpointoutputprefix": f"{raw}/_flytecheckpoints",
            # FlytePropeller writes two quotes if there is no earlier checkpoint.
            "prevcheckpointprefix": f"{before}/_flytecheckpoints" if attempt else '""',
            "perretryuniquekey": f"{self.execution}-{_NODE}-{attempt}",
            "namespace": self.full_namespace,
            "tasktemplatepath": f"{folder}/task.pb",
        }

    def build_metadata(self, template: TaskTemplate, attempt: int = 0) -> TaskExecutionMetadata:
        """Return the metadata that FlytePropeller sends with a task."""
        metadata = TaskExecutionMetadata(
            namespace=self.full_namespace,
            k8s_service_account="default",
            labels={
                "domain": self.domain,
                "execution-id": self.execution,
                "interruptible": str(template.metadata.interruptible).lower(),
                "node-id": _NODE,
                "project": self.project,
            },
        )
        metadata.task_execution_id.task_id.CopyFrom(template.id)
        metadata.task_execution_id.retry_attempt = attempt
        node = metadata.task_execution_id.node_execution_id
        node.node_id = _NODE
        node.execution_id.project, node.execution_id.domain = self.project, self.domain
        node.execution_id.name = self.execution
        return metadata


EXAMPLE: Final = Place()
"""The project, domain, namespace and execution of an attempt if the user names none."""


def build_attempt(
    template: TaskTemplate, inputs: Mapping[str, str], place: Place = EXAMPLE
) -> tuple[TaskTemplate, Attempt]:
    """Return the task as a connector gets it, with `inputs` in its arguments, and an example attempt.

    `place` is the project, domain, namespace and execution of the attempt.

    Raises:
        UnusableInput: If the arguments refer to an input without a value.
    """
    variables = place.build_variables(_STORE)
    known = {**variables, **{f"{_INPUTS}{name}".lower(): value for name, value in inputs.items()}}
    attempt = create_request.read_attempt(place.build_metadata(template), variables["outputprefix"])
    return with_filled_arguments(template, known), attempt


def with_filled_arguments(template: TaskTemplate, known: Mapping[str, str]) -> TaskTemplate:
    """Return a copy of the task with values instead of the placeholders in its arguments.

    `known` has the values by placeholder name in lower case: FlytePropeller's variables and ``inputs.NAME``.

    Raises:
        UnusableInput: If the arguments refer to an input without a value.
    """
    rendered = TaskTemplate()
    rendered.CopyFrom(template)
    if rendered.WhichOneof("target") == "container":
        rendered.container.args[:] = [_fill_text(text, known) for text in template.container.args]
    elif rendered.WhichOneof("target") == "k8s_pod":
        _fill_pod_spec(rendered.k8s_pod.pod_spec, known)
    return rendered


def parse_inputs(pairs: Iterable[str], template: TaskTemplate) -> dict[str, str]:
    """Return the texts of the task's inputs in pairs ``NAME=TEXT``, by name.

    Raises:
        UnusableInput: If a pair has no value, or the task has no such input.
    """
    known = list(template.interface.inputs.variables)
    inputs: dict[str, str] = {}
    for pair in pairs:
        name, equals, inputs[name] = pair.partition("=")
        if not equals:
            raise Misused(f"--input {pair}: has no value; write --input {name}=VALUE")
        if name not in known:
            inputs_of_task = ", ".join(sorted(known)) or "no inputs"
            raise Misused(f"--input {name}: {template.id.name} has no such input; it has {inputs_of_task}")
    return inputs


def _fill_pod_spec(struct: Any, known: Mapping[str, str]) -> None:
    """Replace ``{{.NAME}}`` in args and command of every container by the value that `known` has for NAME."""
    for part in ("containers", "initContainers"):
        for container in _list_values(struct.fields, part):
            fields = container.struct_value.fields
            for key in ("args", "command"):
                for text in _list_values(fields, key):
                    text.string_value = _fill_text(text.string_value, known)


def _list_values(fields: Any, key: str) -> Iterable[Any]:
    """Return the values of a list in a protobuf `Struct`; a missing list is not added to the struct."""
    return fields[key].list_value.values if key in fields else ()


def _fill_text(text: str, known: Mapping[str, str]) -> str:
    def get_value(match: re.Match[str]) -> str:
        name = match["name"]
        if name.lower().startswith(_INPUTS) and name.lower() not in known:
            missing = name[len(_INPUTS) :]
            raise Misused(f"the task's arguments contain {match[0]}; add --input {missing}=VALUE")
        return known.get(name.lower(), match[0])

    return _PLACEHOLDER.sub(get_value, text)


def add_options(*, needs_file: bool = False) -> Callable[[Command], Command]:
    """Return a decorator that adds ``[FILE] [TASK]``, ``--input`` and ``--image``."""
    return cluster_options.add_options(
        click.argument("file", required=needs_file),
        click.argument("task", required=False),
        click.option(
            "--input",
            "-i",
            "inputs",
            multiple=True,
            metavar="K=V",
            help="An input of the task, as JSON or text.",
        ),
        click.option(
            "--image", metavar="NAME", help="Image of tasks that set none. Default: flytekit's image."
        ),
    )


def read_task(
    options: Mapping[str, Any], place: Place, default: TaskTemplate | None = None
) -> tuple[TaskTemplate, Attempt]:
    """Return the task in a command's options, as a connector would receive it, and an example attempt.

    `default` is the task if the options name no file. The project etc. of the attempt are those of `place`.

    Raises:
        UnusableInput: If the file, the task or an input in the options does not exist, or if the arguments of
            the task refer to an input without a value.
    """
    template = default
    if template is None or options["file"]:
        template = task_files.load_template(options["file"], options["task"], image=options["image"])
    return build_attempt(template, parse_inputs(options["inputs"], template), place)
