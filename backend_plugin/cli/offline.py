"""What propeller would add to a task, made up: an attempt of an execution that never was.

The same for every task, so that what is printed changes with the task only.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.cli.sources import Unreadable
from backend_plugin.core.job import Run

_EXECUTION: Final = "example"
_NODE: Final = "n0"
_OUTPUT_PREFIX: Final = f"s3://bucket/metadata/propeller/project-development-{_EXECUTION}/{_NODE}/data/0"
_RAW: Final = f"s3://bucket/raw/{_EXECUTION}-{_NODE}-0"
# As propeller fills them in; without an earlier checkpoint it writes two quotes.
_PLACEHOLDERS: Final = {
    "input": f"{_OUTPUT_PREFIX.rpartition('/')[0]}/inputs.pb",
    "inputPrefix": _OUTPUT_PREFIX.rpartition("/")[0],
    "outputPrefix": _OUTPUT_PREFIX,
    "rawOutputDataPrefix": _RAW,
    "checkpointOutputPrefix": f"{_RAW}/_flytecheckpoints",
    "prevCheckpointPrefix": '""',
    "perRetryUniqueKey": f"{_EXECUTION}-{_NODE}-0",
}
_PLACEHOLDER: Final = re.compile(r"\{\{\s*\.(?P<name>[\w.]+)\s*\}\}")


def attempt(template: TaskTemplate, inputs: Mapping[str, str]) -> tuple[TaskTemplate, Run]:
    """The task as a connector would get it, and for whom."""
    rendered = TaskTemplate()
    rendered.CopyFrom(template)
    known = {**_PLACEHOLDERS, **{f"inputs.{name}": value for name, value in inputs.items()}}
    if rendered.WhichOneof("target") == "container":
        rendered.container.args[:] = [_filled(text, known) for text in template.container.args]
    elif rendered.WhichOneof("target") == "k8s_pod":
        _fill(rendered.k8s_pod.pod_spec, known)
    task = template.id
    labels = {
        "domain": "development",
        "execution-id": _EXECUTION,
        "interruptible": "false",
        "node-id": _NODE,
        "project": "project",
    }
    run = Run(
        output_prefix=_OUTPUT_PREFIX,
        project="project",
        domain="development",
        execution=_EXECUTION,
        node_id=_NODE,
        attempt=0,
        task_project=task.project,
        task_domain=task.domain,
        task_name=task.name,
        task_version=task.version,
        namespace="project-development",
        labels=labels,
        service_account="default",
    )
    return rendered, run


def inputs_of(pairs: Iterable[str], template: TaskTemplate) -> dict[str, str]:
    """``k=v`` texts as a mapping, of inputs that the task has.

    Raises:
        Unreadable: If one is none.
    """
    known = list(template.interface.inputs.variables)
    inputs = dict(pair.partition("=")[::2] for pair in pairs)
    for name in inputs:
        if name not in known:
            near = get_close_matches(name, known, n=1) or sorted(known)
            there = f"it has {', '.join(near)}" if near else "it has none"
            raise Unreadable(f"--input {name}: {template.id.name} has no such input; {there}")
    return inputs


def section(said: Any) -> Mapping[str, Any]:
    """The ``plugins.k8s`` section of a file that holds it alone, or all of Flyte's configuration.

    Raises:
        Unreadable: If it is no mapping.
    """
    for key in ("plugins", "k8s"):
        if isinstance(said, Mapping) and isinstance(said.get(key), Mapping):
            said = said[key]
    if not isinstance(said, Mapping):
        raise Unreadable("settings are no mapping; write Flyte's plugins.k8s section")
    return said


def _fill(struct: Any, known: Mapping[str, str]) -> None:
    """Fill in the args and commands of every container, as propeller does."""
    for part in ("containers", "initContainers"):
        for container in struct.fields[part].list_value.values if part in struct.fields else ():
            fields = container.struct_value.fields
            for key in ("args", "command"):
                for text in fields[key].list_value.values if key in fields else ():
                    text.string_value = _filled(text.string_value, known)


def _filled(text: str, known: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: known.get(found["name"], found[0]), text)
