"""The values that all pods of a task share."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from backend_plugin.core.errors import Problem
from backend_plugin.core.manifest import (
    pod_base,
    pod_draft,
    pod_env,
    pod_metadata,
)
from backend_plugin.core.manifest.pod_draft import PodDraft, PodRequest


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
    run, security = request.run, request.template.security_context
    draft, problems = pod_draft.read(request)
    base, of_base = pod_base.find_template(request)
    problems = [*problems, *of_base, *pod_metadata.check_secrets(security)]
    if draft is None:
        return None, problems
    of_run = pod_metadata.build_execution_metadata(run, security)
    env = pod_env.build_execution_env(run, request.settings)
    return PodContext(request=request, draft=draft, base=base, of_run=of_run, env=env), problems
