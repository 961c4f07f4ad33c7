"""The pod templates of a job: the order of the steps that build them.

Each step is in a module `pod_*`; the job around the pods is in `pytorchjob`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.core.errors import InvalidTask, Problem, Problems
from backend_plugin.core.job import ReplicaGroup, Run
from backend_plugin.core.manifest import (
    pod_base,
    pod_checks,
    pod_containers,
    pod_env,
    pod_extended,
    pod_metadata,
    pod_placement,
    pod_resources,
    pod_security,
    pod_source,
)
from backend_plugin.core.manifest.pod_source import Draft
from backend_plugin.core.settings import PodSecurityMode, Settings
from backend_plugin.core.values import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequest:
    """The input for the pods of a task, for all roles."""

    template: TaskTemplate
    """The task template; it is not modified."""
    run: Run
    settings: Settings
    pod_templates: Sequence[Manifest] = ()
    """Every known core/v1 PodTemplate, of all namespaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """The values from which the pods of all roles are built."""

    request: PodRequest
    draft: Draft
    base: Mapping[str, Any]
    """The ``template`` of the PodTemplate; empty without one."""
    of_run: Mapping[str, Mapping[str, str]]
    """The labels and annotations that an execution sets on each of its objects."""
    env: Sequence[Mapping[str, Any]]
    """The environment variables that an execution sets in each container."""


def pod_templates(request: PodRequest, groups: Sequence[ReplicaGroup]) -> tuple[Manifest, ...]:
    """Return the pod template of each group, in their order: ``{"metadata": ..., "spec": ...}``.

    The templates share no mutable part with the request or with each other.

    Raises:
        InvalidTask: If the pod of a group is invalid; it contains the problems of all groups.
    """
    ground, found = _ground(request)
    problems = Problems(found)
    pods = list(_pods(ground, groups, problems)) if ground is not None else []
    if ground is not None and _mode(request) is PodSecurityMode.REFUSE:
        problems.extend(_security_problems(ground, groups))
    if problems:
        raise InvalidTask(*dict.fromkeys(problems))
    return tuple(_copies(pods))


def find_warnings(request: PodRequest, groups: Sequence[ReplicaGroup]) -> Iterator[Problem]:
    """Yield what has no effect in the PodTemplate, and what is not admitted where the platform only warns."""
    yield from pod_base.find_warnings(
        request.template.metadata.pod_template_name,
        request.settings,
        namespace=request.run.namespace,
        known=request.pod_templates,
    )
    ground = _ground(request)[0] if _mode(request) is PodSecurityMode.WARN else None
    if ground is not None:
        yield from _security_problems(ground, groups)


def _mode(request: PodRequest) -> PodSecurityMode:
    return request.settings.kfpytorch.pod_security.mode_of(request.run.namespace)


def _security_problems(ground: _Ground, groups: Sequence[ReplicaGroup]) -> Iterator[Problem]:
    """Yield each field of the task's pod and of its roles' pod templates that is not admitted."""
    draft, run = ground.draft, ground.request.run
    author = [
        pod_security.Source(path=draft.path, spec=draft.spec),
        pod_security.Source(path="k8sPod.metadata", annotations=draft.annotations),
        pod_security.Source(path="task_execution_metadata", annotations=run.annotations),
    ]
    for group in groups:
        extra = pod_placement.template_of(group, [])
        path, metadata = pod_placement.path_of(group), extra.get("metadata", {})
        author.append(pod_security.Source(path=f"{path}.spec", spec=extra.get("spec", {})))
        annotations = metadata.get("annotations", {})
        author.append(pod_security.Source(path=f"{path}.metadata", annotations=annotations))
    return pod_security.problems(author, ground.base, run, ground.request.settings)


def _ground(request: PodRequest) -> tuple[_Ground | None, list[Problem]]:
    template, settings = request.template, request.settings
    draft, problems = pod_source.read(template, settings)
    base, of_base = pod_base.find(
        template.metadata.pod_template_name,
        settings,
        namespace=request.run.namespace,
        known=request.pod_templates,
    )
    problems = [*problems, *of_base, *pod_metadata.problems(template.security_context)]
    if draft is None:
        return None, problems
    of_run = pod_metadata.of_run(request.run, template.security_context)
    env = pod_env.of_run(request.run, settings)
    return _Ground(request=request, draft=draft, base=base, of_run=of_run, env=env), problems


def _pods(
    ground: _Ground, groups: Sequence[ReplicaGroup], problems: list[Problem]
) -> Iterator[dict[str, Any]]:
    made: list[tuple[ReplicaGroup, dict[str, Any], dict[str, Any]]] = []
    for group in groups:
        # Most roles differ at most in number and image, and building a pod is the slow part.
        alike = [each for each in made if _places(each[0]) == _places(group)]
        same = next((whole for other, _, whole in alike if _runs(other) == _runs(group)), None)
        if same is None:
            pod = alike[0][1] if alike else _pod(ground, group, problems)
            same = {**pod, "spec": _finished(ground, pod["spec"], group, problems)}
            made.append((group, pod, same))
        yield same


def _places(group: ReplicaGroup) -> tuple[object, ...]:
    return group.resources, group.placement


def _runs(group: ReplicaGroup) -> tuple[object, ...]:
    return group.image, group.processes


def _finished(
    ground: _Ground, spec: Mapping[str, Any], group: ReplicaGroup, problems: list[Problem]
) -> Mapping[str, Any]:
    draft, settings = ground.draft, ground.request.settings
    spec = pod_containers.finished(spec, draft.primary, group, settings)
    problems.extend(pod_checks.problems(spec, draft, settings))
    if group.processes > 1:
        problems.extend(pod_checks.ranks_without_gpus(spec, group, settings))
    return spec


def _pod(ground: _Ground, group: ReplicaGroup, problems: list[Problem]) -> dict[str, Any]:
    """Return the pod of a group before `pod_containers.finished`."""
    settings, draft = ground.request.settings, ground.draft
    extra = pod_placement.template_of(group, problems)
    path = f"custom.kfpytorch.{group.role.value.lower()}.podTemplate"
    problems.extend(pod_base.find_unused_containers(path, extra, draft.spec))
    claims = pod_containers.Claims(
        draft=draft,
        base=pod_base.stacked(extra, ground.base) if extra else ground.base,
        group=pod_resources.of_group(group, settings, problems),
        settings=settings,
    )
    spec = claims.resolved()
    spec = (
        _with_role(ground, spec, extra)
        if draft.is_decorated
        else _decorated(ground, spec, extra, problems=problems)
    )
    spec = pod_placement.of_group(spec, group)
    spec = pod_extended.tolerating(spec, pod_resources.requested(spec), settings)
    return {"metadata": _metadata(ground, extra), "spec": spec}


def _decorated(
    ground: _Ground, spec: Mapping[str, Any], extra: Mapping[str, Any], *, problems: list[Problem]
) -> Mapping[str, Any]:
    """Return the spec with everything that FlytePropeller would have added."""
    request, primary = ground.request, ground.draft.primary
    run, settings, extended = request.run, request.settings, request.template.extended_resources
    spec = pod_containers.decorated(spec, primary, ground.env, settings)
    spec = pod_placement.placed(spec, run, settings, resources=pod_resources.claimed(spec))
    for below in (extra, ground.base):
        spec = pod_base.laid_onto(below, spec, primary)
    # After the PodTemplate, so that the alternatives in its affinity include the requirement too.
    required = pod_placement.requirement(run, settings)
    spec = pod_placement.requiring(spec, [required]) if required else spec
    if pod_extended.has_gpu(spec, settings):
        spec = pod_extended.accelerated(spec, extended.gpu_accelerator, settings)
    if extended.HasField("shared_memory"):
        found = list(pod_extended.memory_problems(spec, extended.shared_memory, primary))
        problems.extend(found)
        spec = spec if found else pod_extended.with_shared_memory(spec, extended.shared_memory, primary)
    return spec


def _with_role(ground: _Ground, spec: Mapping[str, Any], extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a spec that FlytePropeller rendered, completed for the role's resources and pod template."""
    request, before = ground.request, ground.draft.spec
    settings, accelerator = request.settings, request.template.extended_resources.gpu_accelerator
    new = pod_resources.claimed(spec) - pod_resources.claimed(before)
    spec = pod_placement.tolerating(spec, pod_placement.of_resources(new, settings), ground.base)
    spec = pod_base.laid_onto(extra, spec, ground.draft.primary)
    required = pod_placement.requirement(request.run, settings)
    if required and any(pod_placement.terms_of(below.get("spec", {})) for below in (extra, ground.base)):
        implied = pod_extended.requirements(accelerator, settings)
        spec = pod_placement.requiring(pod_placement.without_escapes(spec, [required, *implied]), [required])
    if pod_extended.has_gpu(spec, settings) and not pod_extended.has_gpu(before, settings):
        spec = pod_extended.accelerated(spec, accelerator, settings)
    return spec


def _metadata(ground: _Ground, extra: Mapping[str, Any]) -> dict[str, Any]:
    draft = ground.draft
    return pod_metadata.of_pod(
        [
            ground.base.get("metadata", {}),
            extra.get("metadata", {}),
            {"labels": draft.labels, "annotations": draft.annotations},
            ground.of_run,
        ],
        ground.request.settings,
    )


def _copies(pods: Sequence[Mapping[str, Any]]) -> Iterator[Manifest]:
    """Yield a copy of each pod; a pod that several roles share is encoded once and decoded for each."""
    written: dict[int, bytes] = {}
    for pod in pods:
        if id(pod) not in written:
            written[id(pod)] = msgspec.json.encode(pod, order="sorted")
        yield msgspec.json.decode(written[id(pod)])
