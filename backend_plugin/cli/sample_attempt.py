"""An example attempt, with the values that FlytePropeller would add to a task.

All tasks get the same values, so that the output depends only on the task and its place.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.cli.command_errors import Misused
from backend_plugin.core.job import Attempt

_EXECUTION: Final = "example"
_NODE: Final = "n0"
_RAW: Final = f"s3://bucket/raw/{_EXECUTION}-{_NODE}-0"
_PLACEHOLDER: Final = re.compile(r"\{\{\s*[.$](?P<name>[\w.]+)\s*\}\}")
_INPUTS: Final = "inputs."


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The project, domain and namespace of the example attempt."""

    project: str = "project"
    domain: str = "development"
    namespace: str = ""
    """Empty: Flyte's default, ``PROJECT-DOMAIN``."""

    @property
    def full_namespace(self) -> str:
        """The namespace of the job."""
        return self.namespace or f"{self.project}-{self.domain}"

    @property
    def output_prefix(self) -> str:
        """The URL below which the attempt writes its outputs."""
        folder = f"{self.project}-{self.domain}-{_EXECUTION}/{_NODE}/data/0"
        return f"s3://bucket/metadata/propeller/{folder}"


EXAMPLE: Final = Place()
"""The place of an attempt if the user names none."""


def _build_placeholders(place: Place) -> Mapping[str, str]:
    """Return the values of FlytePropeller's variables, by their names in lower case."""
    prefix = place.output_prefix
    folder = prefix.rpartition("/")[0]
    return {
        "input": f"{folder}/inputs.pb",
        "inputprefix": folder,
        "outputprefix": prefix,
        "rawoutputdataprefix": _RAW,
        "checkpointoutputprefix": f"{_RAW}/_flytecheckpoints",
        "prevcheckpointprefix": '""',  # FlytePropeller writes two quotes if there is no earlier checkpoint.
        "perretryuniquekey": f"{_EXECUTION}-{_NODE}-0",
        "namespace": place.full_namespace,
        "tasktemplatepath": f"{folder}/task.pb",
    }


def build_attempt(
    template: TaskTemplate, inputs: Mapping[str, str], place: Place = EXAMPLE
) -> tuple[TaskTemplate, Attempt]:
    """Return the task as a connector would receive it, and the example attempt.

    Raises:
        InvalidInput: If the arguments refer to an input without a value.
    """
    known = {
        **_build_placeholders(place),
        **{f"{_INPUTS}{name}".lower(): value for name, value in inputs.items()},
    }
    rendered = with_filled_arguments(template, known)
    task = template.id
    labels = {
        "domain": place.domain,
        "execution-id": _EXECUTION,
        "interruptible": str(template.metadata.interruptible).lower(),
        "node-id": _NODE,
        "project": place.project,
    }
    run = Attempt(
        output_prefix=place.output_prefix,
        project=place.project,
        domain=place.domain,
        execution=_EXECUTION,
        node_id=_NODE,
        attempt=0,
        task_project=task.project,
        task_domain=task.domain,
        task_name=task.name,
        task_version=task.version,
        namespace=place.full_namespace,
        labels=labels,
        service_account="default",
    )
    return rendered, run


def with_filled_arguments(template: TaskTemplate, known: Mapping[str, str]) -> TaskTemplate:
    """Return the task with its arguments filled in; `known` has FlytePropeller's variables in lower case.

    Raises:
        InvalidInput: If the arguments refer to an input without a value.
    """
    rendered = TaskTemplate()
    rendered.CopyFrom(template)
    if rendered.WhichOneof("target") == "container":
        rendered.container.args[:] = [_fill_text(text, known) for text in template.container.args]
    elif rendered.WhichOneof("target") == "k8s_pod":
        _fill_pod_spec(rendered.k8s_pod.pod_spec, known)
    return rendered


def parse_inputs(pairs: Iterable[str], template: TaskTemplate) -> dict[str, str]:
    """Parse ``k=v`` pairs for inputs of the task.

    Raises:
        InvalidInput: If a pair has no value, or the task has no such input.
    """
    known = list(template.interface.inputs.variables)
    inputs: dict[str, str] = {}
    for pair in pairs:
        name, equals, inputs[name] = pair.partition("=")
        if not equals:
            raise Misused(f"--input {pair}: has no value; write --input {name}=VALUE")
        if name not in known:
            near = get_close_matches(name, known, n=1) or sorted(known)
            known_inputs = f"it has {', '.join(near)}" if near else "it has no inputs"
            raise Misused(f"--input {name}: {template.id.name} has no such input; {known_inputs}")
    return inputs


def _fill_pod_spec(struct: Any, known: Mapping[str, str]) -> None:
    """Fill in the args and commands of every container, as FlytePropeller does."""
    for part in ("containers", "initContainers"):
        for container in struct.fields[part].list_value.values if part in struct.fields else ():
            fields = container.struct_value.fields
            for key in ("args", "command"):
                for text in fields[key].list_value.values if key in fields else ():
                    text.string_value = _fill_text(text.string_value, known)


def _fill_text(text: str, known: Mapping[str, str]) -> str:
    def get_value(match: re.Match[str]) -> str:
        name = match["name"]
        if name.lower().startswith(_INPUTS) and name.lower() not in known:
            missing = name[len(_INPUTS) :]
            raise Misused(f"the task's arguments contain {match[0]}; add --input {missing}=VALUE")
        return known.get(name.lower(), match[0])

    return _PLACEHOLDER.sub(get_value, text)
