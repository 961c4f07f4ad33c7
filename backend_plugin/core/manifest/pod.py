"""The pod templates of a job: the order of the steps that build them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from backend_plugin.core.errors import InvalidTask, Problem, Problems
from backend_plugin.core.job import ReplicaGroup
from backend_plugin.core.manifest import (
    object_metadata,
    pod_base,
    pod_checks,
    pod_containers,
    pod_draft,
    pod_placement,
    pod_resources,
    pod_security,
)
from backend_plugin.core.manifest.pod_draft import PodDraft, PodRequest
from backend_plugin.core.settings import PodSecurityMode
from backend_plugin.core.values import Fields, Manifest


class _PodContext(msgspec.Struct, frozen=True, kw_only=True):
    """The values from which the pods of all roles are built."""

    request: PodRequest
    draft: PodDraft
    base: Fields
    """The ``template`` of the cluster's PodTemplate; empty without one."""
    of_run: Mapping[str, Mapping[str, str]]
    """The labels and annotations that the execution sets on its pods."""
    env: Sequence[Fields]
    """The environment variables that the execution and the platform set in each container."""


def build_pod_templates(
    request: PodRequest, groups: Sequence[ReplicaGroup]
) -> tuple[tuple[Manifest, ...], list[Problem]]:
    """Return the pod template of each group, in their order, and warnings.

    Groups with equal pods share one template. There is a warning for each unknown field of the task's
    PodTemplate. There is also one if the task names no PodTemplate and the platform's default PodTemplate
    does not exist. If the mode of the setting ``pod-security`` is ``warn``, there is a warning for each field
    of the author or the execution that Pod Security does not admit. Raises `InvalidTask` with the problems of
    all groups.
    """
    problems, warnings = Problems(), list[Problem]()
    pods: list[dict[str, Any]] = []
    if (context := _build_context(request, problems, warnings)) is not None:
        pods.extend(_build_pods(context, groups, problems))
        mode = request.settings.kfpytorch.pod_security.get_mode(request.run.namespace)
        if mode is not PodSecurityMode.OFF:
            found = problems if mode is PodSecurityMode.ENFORCE else warnings
            found.extend(_check_security(context, groups))
    if problems:
        raise InvalidTask(*dict.fromkeys(problems))
    distinct = {id(each): each for each in pods}
    copies: dict[int, Manifest] = {
        key: msgspec.json.decode(msgspec.json.encode(each, order="sorted")) for key, each in distinct.items()
    }
    return tuple(copies[id(each)] for each in pods), warnings


def _build_context(
    request: PodRequest, problems: list[Problem], warnings: list[Problem]
) -> _PodContext | None:
    """Return the values from which all pods are built; None if the task has no valid pod.

    Problems of the task are added to `problems`, and warnings about its PodTemplate to `warnings`.
    """
    run, security = request.run, request.template.security_context
    draft, of_draft = pod_draft.read(request)
    base, of_base, about_base = pod_base.find_template(request)
    of_task = request.template.metadata.metadata
    of_job = object_metadata.check_metadata(
        {"labels": of_task.labels, "annotations": of_task.annotations}, "metadata.metadata"
    )
    problems.extend([*of_draft, *of_base, *of_job])
    warnings.extend(about_base)
    if draft is None:
        return None
    of_run = object_metadata.build_execution_metadata(run, security)
    env = pod_containers.build_execution_env(run, request.settings)
    return _PodContext(request=request, draft=draft, base=base, of_run=of_run, env=env)


def _check_security(context: _PodContext, groups: Sequence[ReplicaGroup]) -> Iterator[Problem]:
    draft, run = context.draft, context.request.run
    author = [
        pod_security.PodPart(path=draft.path, spec=draft.spec),
        pod_security.PodPart(path="k8sPod.metadata", annotations=draft.annotations),
        pod_security.PodPart(path="task_execution_metadata", annotations=run.annotations),
    ]
    for group in groups:
        extra, path = pod_placement.read_role_template(group, []), pod_placement.get_template_path(group)
        author.append(pod_security.PodPart(path=f"{path}.spec", spec=extra.get("spec", {})))
        annotations = extra.get("metadata", {}).get("annotations", {})
        author.append(pod_security.PodPart(path=f"{path}.metadata", annotations=annotations))
    return pod_security.check_baseline(author, context.base, run, context.request.settings)


def _build_pods(
    context: _PodContext, groups: Sequence[ReplicaGroup], problems: list[Problem]
) -> Iterator[dict[str, Any]]:
    # Building a pod is slow, and most roles differ only in the number of replicas.
    built: list[tuple[tuple[object, ...], dict[str, Any]]] = []
    for group in groups:
        key = group.resources, group.placement, group.image, group.processes
        pod = next((pod for other, pod in built if other == key), None)
        if pod is None:
            pod = _build_pod(context, group, problems)
            pod["spec"] = _finalize_spec(context, pod["spec"], group, problems)
            built.append((key, pod))
        yield pod


def _finalize_spec(
    context: _PodContext, spec: Fields, group: ReplicaGroup, problems: list[Problem]
) -> Fields:
    draft, settings, dialect = context.draft, context.request.settings, context.request.dialect
    spec = pod_containers.finalize_spec(
        spec, draft.primary, group, settings, container_name=dialect.container
    )
    problems.extend(pod_checks.check_pod(spec, draft, settings, dialect))
    if not problems:  # Earlier checks report errors in the same fields with clearer messages.
        problems.extend(pod_checks.check_api_rules(spec, draft, dialect))
    if group.processes > 1:
        problems.extend(pod_checks.check_gpu_count(spec, group, settings, dialect))
    return spec


def _build_pod(context: _PodContext, group: ReplicaGroup, problems: list[Problem]) -> dict[str, Any]:
    settings, draft = context.request.settings, context.draft
    extra = pod_placement.read_role_template(group, problems)
    path = pod_placement.get_template_path(group)
    problems.extend(pod_base.find_unused_containers(path, extra, draft.spec))
    spec = pod_containers.resolve_resources(
        draft,
        pod_base.stack_templates(extra, context.base) if extra else context.base,
        pod_resources.read_role_resources(group, settings, problems),
        settings,
    )
    spec = (
        _with_role_fields(context, spec, extra)
        if draft.is_decorated
        else _with_platform_fields(context, spec, extra, problems=problems)
    )
    spec = pod_placement.with_role_placement(spec, group)
    spec = pod_placement.with_resource_tolerations(
        spec, pod_resources.get_requested_resource_names(spec), settings
    )
    layers = [
        context.base.get("metadata", {}),
        extra.get("metadata", {}),
        {"labels": draft.labels, "annotations": draft.annotations},
        context.of_run,
    ]
    metadata = object_metadata.merge_pod_metadata(layers, settings)
    problems.extend(object_metadata.check_metadata(metadata, "metadata"))
    return {"metadata": metadata, "spec": spec}


def _with_platform_fields(
    context: _PodContext, spec: Fields, extra: Fields, *, problems: list[Problem]
) -> Fields:
    """Return the spec with the fields that FlytePropeller adds to the pods that it renders.

    The spec takes precedence over `extra`, the role's own pod template. Both take precedence over the
    PodTemplate.
    """
    request, primary = context.request, context.draft.primary
    run, settings, extended = request.run, request.settings, request.template.extended_resources
    spec = pod_containers.with_flyte_defaults(spec, primary, context.env, settings)
    spec = pod_placement.with_pod_settings(
        spec, run, settings, resources=pod_resources.get_container_resource_names(spec)
    )
    for below in (extra, context.base):
        spec = pod_base.merge_template(below, spec, primary)
    # After the PodTemplate, so that the alternatives in its affinity include the requirement too.
    spec = pod_placement.with_requirements(spec, pod_placement.list_node_requirements(run, settings))
    if extended.HasField("gpu_accelerator") and pod_placement.has_gpu(spec, settings):
        spec = pod_placement.with_accelerator(spec, extended.gpu_accelerator, settings)
    if extended.HasField("shared_memory"):
        memory = extended.shared_memory
        problems.extend(pod_containers.check_shared_memory(spec, memory, primary))
        if not problems:
            spec = pod_containers.with_shared_memory(spec, memory, primary)
    return spec


def _with_role_fields(context: _PodContext, spec: Fields, extra: Fields) -> Fields:
    """Return a spec that FlytePropeller rendered, merged onto `extra`, the role's own pod template.

    Tolerations and node requirements for the resources of the role are added.
    """
    request, before = context.request, context.draft.spec
    settings, accelerator = request.settings, request.template.extended_resources.gpu_accelerator
    old, new = map(pod_resources.get_container_resource_names, (before, spec))
    if tolerations := pod_placement.list_resource_tolerations(new - old, settings):
        spec = {**spec, "tolerations": [*tolerations, *spec.get("tolerations", ())]}
    spec = pod_base.merge_template(extra, spec, context.draft.primary)
    required = pod_placement.list_node_requirements(request.run, settings)
    below = [extra.get("spec", {}), context.base.get("spec", {})]
    if required and any(map(pod_placement.list_node_terms, below)):
        implied = pod_placement.build_accelerator_requirements(accelerator, settings)
        spec = pod_placement.without_weaker_terms(spec, [*required, *implied])
        spec = pod_placement.with_requirements(spec, required)
    if pod_placement.has_gpu(spec, settings) and not pod_placement.has_gpu(before, settings):
        spec = pod_placement.with_accelerator(spec, accelerator, settings)
    return spec
