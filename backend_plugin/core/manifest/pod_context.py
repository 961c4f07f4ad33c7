"""The input for the pods of a task (`PodRequest`), and the values that all its pods share (`PodContext`)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import Attempt
from backend_plugin.core.manifest import (
    pod_base,
    pod_draft,
    pod_env,
    pod_metadata,
)
from backend_plugin.core.manifest.pod_draft import PodDraft
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Manifest


class PodRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The input for the pods of a task, for all roles."""

    template: TaskTemplate
    """The task template; it is not modified."""
    run: Attempt
    settings: Settings
    dialect: Dialect
    pod_templates: Sequence[Manifest] = ()
    """Every known core/v1 PodTemplate, of all namespaces."""


class PodContext(msgspec.Struct, frozen=True, kw_only=True):
    """The values from which the pods of all roles are built."""

    request: PodRequest
    draft: PodDraft
    base: Mapping[str, Any]
    """The ``template`` of the cluster's PodTemplate; empty without one."""
    of_run: Mapping[str, Mapping[str, str]]
    """The labels and annotations that the execution sets on its pods."""
    env: Sequence[Mapping[str, Any]]
    """The environment variables that the execution and the platform set in each container."""


def build_pod_context(request: PodRequest) -> tuple[PodContext | None, list[Problem]]:
    """Return the context, or None if the task has no usable pod, and the problems of the task."""
    template, settings = request.template, request.settings
    draft, problems = pod_draft.read(template, settings)
    base, of_base = pod_base.find_template(
        template.metadata.pod_template_name,
        settings,
        namespace=request.run.namespace,
        known=request.pod_templates,
    )
    problems = [*problems, *of_base, *pod_metadata.check_secrets(template.security_context)]
    if draft is None:
        return None, problems
    of_run = pod_metadata.build_execution_metadata(request.run, template.security_context)
    env = pod_env.build_execution_env(request.run, settings)
    return PodContext(request=request, draft=draft, base=base, of_run=of_run, env=env), problems
