"""Reads the pod of a task template, whose target is a container or a pod, as a `PodDraft`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from flyteidl.core.tasks_pb2 import Resources, TaskTemplate

from backend_plugin.core import schema_check
from backend_plugin.core.decoding.replica_specs import RESOURCE_NAMES
from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.errors import Problem, Problems
from backend_plugin.core.job import Attempt
from backend_plugin.core.protojson import build_problem, decode_struct, format_value
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Fields, Manifest

_KINDS: Final = ("containers", "initContainers")
PRIMARY_KEY: Final = "primary_container_name"
# A variable that FlytePropeller sets in every container that it renders, and that no other container has.
DECORATED: Final = "FLYTE_INTERNAL_EXECUTION_ID"
# A name contains no brace. Otherwise the matching time would grow with the square of the number of ``{{``.
_PLACEHOLDER: Final = re.compile(
    r"{{\s*[.$](?:inputs?(?:Prefix|\.[^{}\s]+)?|outputPrefix|rawOutputDataPrefix|checkpointOutputPrefix"
    r"|prevCheckpointPrefix|perRetryUniqueKey|taskTemplatePath|namespace)\s*}}",
    re.IGNORECASE,
)
MOST_CONTAINERS: Final = 128
"""The maximum number of containers in a list of a pod; a pod with 1,000 takes 0.1 seconds to build."""
# The first FlytePropeller release that replaces placeholders in the task templates for connectors.
FIRST_PROPELLER: Final = "1.16.7"


class PodRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The input from which the pods of all roles of a task are built."""

    template: TaskTemplate
    """The task template; it is not modified."""
    run: Attempt
    settings: Settings
    dialect: Dialect
    pod_templates: Sequence[Manifest] = ()
    """Every known core/v1 PodTemplate, of all namespaces."""


class PodDraft(msgspec.Struct, frozen=True, kw_only=True):
    """The pod in a task template, from which the pods of all replica roles are built."""

    spec: Fields
    primary: str
    """The name of the container that trains."""
    path: str
    """The path of the spec in the task template."""
    is_decorated: bool
    """True if FlytePropeller has added the platform's fields, so that they must not be added again."""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)

    def get_container_path(self, kind: str, index: int) -> str:
        """Return the path of a container in the task template."""
        return self.path if self.path == "container" else f"{self.path}.{kind}[{index}]"


def read(request: PodRequest) -> tuple[PodDraft | None, list[Problem]]:
    """Return the pod in the task template, and its problems.

    The pod is None if it is invalid, or if the task has neither a container nor a pod.
    """
    target = request.template.WhichOneof("target")
    if target == "container":
        return _build_container_draft(request.template, request.settings)
    if target == "k8s_pod":
        return _build_pod_draft(request.template)
    return None, [
        Problem(
            field="target",
            value=str(target),
            message="contains no training container",
            remedy="write a container or a k8s_pod",
        )
    ]


def _build_container_draft(template: TaskTemplate, settings: Settings) -> tuple[PodDraft, list[Problem]]:
    target = template.container
    problems = Problems(_check_placeholders(list(target.command), "container.command"))
    problems += _check_placeholders(list(target.args), "container.args")
    if target.HasField("data_config"):
        problems.append(_copilot_problem("container.dataConfig"))
    container: dict[str, Any] = {
        # Without a name only the template containers `default` and `primary` apply to it.
        "name": "",
        "image": target.image,
        "command": list(target.command),
        "args": list(target.args),
        "env": [{"name": each.key, "value": each.value} for each in target.env],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "imagePullPolicy": settings.image_pull_policy,
        "resources": {
            "requests": _parse_amounts(target.resources.requests, "requests", settings, problems),
            "limits": _parse_amounts(target.resources.limits, "limits", settings, problems),
        },
    }
    spec = {"containers": [{key: value for key, value in container.items() if value or key == "name"}]}
    return PodDraft(spec=spec, primary="", path="container", is_decorated=False), problems


def _parse_amounts(entries: Any, part: str, settings: Settings, problems: list[Problem]) -> dict[str, str]:
    amounts = {}
    for index, entry in enumerate(entries):
        path = f"container.resources.{part}[{index}]"
        amount, wrong = schema_check.convert_value(entry.value, schema_check.QUANTITY, path)
        problems += wrong
        name = settings.gpu_resource_name if entry.name == Resources.GPU else RESOURCE_NAMES.get(entry.name)
        if amount in (None, "0"):
            continue  # Flyte also treats zero as not specified.
        if name is None:
            remedy = "request cpu, memory, gpu or ephemeral storage"
            problems.append(build_problem(path, entry.name, "is not a resource of containers", remedy))
        else:
            amounts[name] = amount
    return amounts


def _build_pod_draft(template: TaskTemplate) -> tuple[PodDraft | None, list[Problem]]:
    target, path = template.k8s_pod, "k8sPod.podSpec"
    plain = schema_check.normalize_json(decode_struct(target.pod_spec))
    spec, wrong = schema_check.convert_value(plain, "PodSpec", path)
    problems = Problems(wrong)
    problems += _check_container_names(plain, path)
    if not problems:
        problems += _check_container_count(spec, path)
    if problems:
        return None, problems
    configured = template.config.get(PRIMARY_KEY, "") or target.primary_container_name
    containers: Sequence[Fields] = spec.get("containers", ())
    # A pod template of `with_overrides` arrives without its primary container name.
    only = containers[0] if len(containers) == 1 else None
    train = next((each for each in containers if each["name"] == configured), only)
    if train is None:
        names = ", ".join(format_value(each["name"]) for each in containers)
        remedy = f"name one of {names}" if names else "add a container to the pod"
        message = "is not the name of a container of the pod"
        return None, [build_problem(f"config.{PRIMARY_KEY}", configured, message, remedy)]
    draft = PodDraft(
        spec=spec,
        primary=train["name"],
        path=path,
        is_decorated=any(each.get("name") == DECORATED for each in train.get("env", ())),
        labels=dict(target.metadata.labels),
        annotations=dict(target.metadata.annotations),
    )
    if target.HasField("data_config") and not draft.is_decorated:
        problems.append(_copilot_problem("k8sPod.dataConfig"))
    problems += _check_pod_placeholders(spec, path)
    return draft, problems


def _check_pod_placeholders(spec: Fields, path: str) -> Iterator[Problem]:
    for kind in _KINDS:
        for index, each in enumerate(spec.get(kind, ())):
            for part in ("command", "args"):
                yield from _check_placeholders(each.get(part, ()), f"{path}.{kind}[{index}].{part}")


def _check_placeholders(words: Sequence[str], path: str) -> Iterator[Problem]:
    remedy = f"update FlytePropeller to {FIRST_PROPELLER} or later, and do not use it in commands"
    for index, word in enumerate(words):
        if _PLACEHOLDER.search(word):
            yield build_problem(f"{path}[{index}]", word, "was not replaced by Flyte", remedy)


def _check_container_count(spec: Fields, path: str) -> Iterator[Problem]:
    for kind in _KINDS:
        if (number := len(spec.get(kind, ()))) > MOST_CONTAINERS:
            yield Problem(
                field=f"{path}.{kind}",
                value=f"{number:,} containers",
                message=f"are more than the limit of {MOST_CONTAINERS}",
                remedy="leave out what is not needed",
            )


def _check_container_names(spec: Fields, path: str) -> Iterator[Problem]:
    for kind in _KINDS:
        containers = spec.get(kind, ())
        for index, each in enumerate(containers if isinstance(containers, list) else ()):
            if isinstance(each, Mapping) and not each.get("name"):
                yield build_problem(f"{path}.{kind}[{index}].name", "", "is empty", "name the container")


def _copilot_problem(path: str) -> Problem:
    return Problem(
        field=path,
        value="{...}",
        message="requires Flyte's co-pilot, which this backend does not add",
        remedy="leave it out; tasks written in Python never need it",
    )
