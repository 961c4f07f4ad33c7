"""Answers a request of ``render --batch``, which contains a task, its metadata, settings and PodTemplates."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
from flyteidl.admin.agent_pb2 import TaskExecutionMetadata
from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.message import Message

from backend_plugin.cli.json_lines import build_error
from backend_plugin.core import settings as platform
from backend_plugin.core.errors import InvalidSettings, InvalidTask, Problem, Problems
from backend_plugin.core.job import Attempt
from backend_plugin.core.pipeline import plan
from backend_plugin.core.protojson import parse_message
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities
from backend_plugin.core.values import Manifest
from backend_plugin.shell import create_request

M = TypeVar("M", bound=Message)


def render_manifests(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the key ``manifests``: the Kubernetes objects for the task in a request of ``render --batch``.

    Raises:
        InvalidTask: If the task is invalid; with all problems of the first check that fails.
        InvalidSettings: If the settings are invalid; with every problem.
    """
    template, run = read_task(request)
    planned = plan(
        template, run, read_settings(request), _read_pod_templates(request), _read_capabilities(request)
    )
    return {"manifests": planned.manifests}


def read_task(request: Mapping[str, Any]) -> tuple[TaskTemplate, Attempt]:
    """Return the task of a request of ``render --batch``, and the attempt that the metadata describe.

    Raises:
        InvalidTask: If the template, the metadata or the output prefix is invalid; with every problem.
    """
    problems = Problems()
    template = _parse_message(request, "template", TaskTemplate(), problems)
    metadata = _parse_message(request, "metadata", TaskExecutionMetadata(), problems)
    prefix = request.get("output_prefix")
    if not isinstance(prefix, str | None):
        problems += build_error("output_prefix", prefix, "is not text", "write where outputs go").problems
    if problems:
        raise InvalidTask(*problems)
    return template, create_request.read_attempt(metadata, prefix if isinstance(prefix, str) else "")


def _parse_message(request: Mapping[str, Any], key: str, message: M, problems: list[Problem]) -> M:
    value = request.get(key)
    if isinstance(value, Mapping):
        parse_message(value, message, key, problems)
    elif key == "template" or value is not None:
        problems += build_error(key, value, "is not an object", "write a message as protobuf JSON").problems
    return message


def read_settings(request: Mapping[str, Any]) -> platform.Settings:
    """Return the settings of a request, or Flyte's defaults.

    Raises:
        InvalidTask: If the settings are not a mapping.
        InvalidSettings: If the settings are invalid; with every problem.
    """
    section = {} if request.get("settings") is None else request["settings"]
    if not isinstance(section, Mapping):
        raise build_error("settings", section, "is not an object", "write Flyte's plugins.k8s section")
    try:
        return platform.read(section)
    except InvalidSettings as refusal:
        problems = [replace(problem, field=f"settings.{problem.field}") for problem in refusal.problems]
        raise InvalidSettings(*problems) from refusal


def _read_capabilities(request: Mapping[str, Any]) -> Capabilities:
    value = request.get("capabilities")
    if value is None:
        return NOTHING
    try:
        return msgspec.convert(value, Capabilities)
    except msgspec.ValidationError as refusal:
        raise build_error(
            "capabilities",
            value,
            f"does not describe gang capabilities: {refusal}",
            "correct the value that the message names",
        ) from refusal


def _read_pod_templates(request: Mapping[str, Any]) -> Sequence[Manifest]:
    templates = request.get("pod_templates")
    if templates is None:
        return ()
    if not isinstance(templates, Sequence) or isinstance(templates, str):
        raise build_error("pod_templates", templates, "is not a list", "write a list of core/v1 PodTemplates")
    for index, template in enumerate(templates):
        if not isinstance(template, Mapping):
            raise build_error(
                f"pod_templates[{index}]", template, "is not an object", "write a core/v1 PodTemplate"
            )
    return templates
