"""Placement of a pod: tolerations, node selectors, affinity, and other pod fields that the platform sets.

The GPU accelerator of a task template adds requirements for nodes.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from flyteidl.core.tasks_pb2 import GPUAccelerator

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import Attempt, ReplicaGroup
from backend_plugin.core.schema_check import convert_value, iter_unknown_fields, normalize_json
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Fields, omit_empty

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def with_pod_settings(spec: Fields, run: Attempt, settings: Settings, *, resources: Iterable[str]) -> Fields:
    """Return a spec with the pod-level fields, such as tolerations, of the platform and the execution.

    `resources` contains the names of the resources that the containers use. The settings may have tolerations
    for pods with these resources.
    """
    tolerations = list_resource_tolerations(resources, settings)
    selector = {**settings.default_node_selector, **spec.get("nodeSelector", {})}
    if run.is_interruptible:
        tolerations += settings.interruptible_tolerations
        selector |= settings.interruptible_node_selector
    fallbacks = {
        "restartPolicy": "Never",
        "serviceAccountName": run.service_account,
        "schedulerName": settings.scheduler_name,
    }
    network = settings.enable_host_networking_pod
    overrides = {
        **{key: spec.get(key) or value for key, value in fallbacks.items()},
        "tolerations": [*tolerations, *settings.default_tolerations, *spec.get("tolerations", ())],
        "nodeSelector": selector,
        "hostNetwork": spec.get("hostNetwork") if network is None else network,
    }
    # A field that is present but empty counts as specified.
    defaults = {
        "affinity": settings.default_affinity or {},
        "securityContext": settings.default_pod_security_context,
        "dnsConfig": settings.default_pod_dns_config,
    }
    given = {key: value for key, value in defaults.items() if value is not None}
    others = {key: value for key, value in spec.items() if key not in overrides}
    return {**given, **others, **omit_empty(overrides)}


def list_resource_tolerations(names: Iterable[str], settings: Settings) -> list[Fields]:
    """Return the tolerations that the settings specify for resources."""
    return [each for name in sorted(names) for each in settings.resource_tolerations.get(name, ())]


def list_node_requirements(run: Attempt, settings: Settings) -> list[Fields]:
    """Return the node requirement of the settings for an attempt; empty if it is not set.

    The settings have one for interruptible attempts, and one for other attempts.
    """
    requirement = settings.non_interruptible_node_selector_requirement
    if run.is_interruptible:
        requirement = settings.interruptible_node_selector_requirement
    return [] if requirement is None else [requirement]


def list_node_terms(spec: Fields) -> Sequence[Fields]:
    """Return the node selector terms of a pod, of which a node must match at least one."""
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    terms: Sequence[Fields] = affinity.get(_REQUIRED, {}).get("nodeSelectorTerms", ())
    return terms


def with_role_placement(spec: Fields, group: ReplicaGroup) -> Fields:
    """Return the spec with the node selector, tolerations and priority class that its role specifies."""
    place = group.placement
    spec = dict(spec)
    if place.node_selector:
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **place.node_selector}
    if place.tolerations:
        spec["tolerations"] = [*spec.get("tolerations", ()), *place.tolerations]
    if place.priority_class_name is not None:
        spec["priorityClassName"] = place.priority_class_name
    return spec


def read_role_template(group: ReplicaGroup, problems: list[Problem]) -> Fields:
    """Return the pod template that the author sets for a role; empty if absent or invalid.

    Problems of the template are added to `problems`.
    """
    pod_template = group.placement.pod_template
    if pod_template is None:
        return {}
    path = get_template_path(group)
    written = normalize_json(pod_template)
    template, found = convert_value(written, "PodTemplateSpec", path)
    problems.extend(found)
    # Flyte ignores unknown fields. Only this server reads the template, so a wrong name is an error.
    remedy = "correct its name, or leave it out; kubectl explain pod.spec lists the fields"
    for name in () if found else iter_unknown_fields(written, "PodTemplateSpec"):
        message = "is not a field of a pod"
        problems.append(Problem(field=f"{path}.{name}", value="...", message=message, remedy=remedy))
    return template or {}


def get_template_path(group: ReplicaGroup) -> str:
    """Return the path of the pod template of a role in the task template."""
    return f"custom.kfpytorch.{group.role.value.lower()}.podTemplate"


def without_weaker_terms(spec: Fields, expressions: Sequence[Fields]) -> Fields:
    """Return the spec without node selector terms that require only `expressions`, if other terms exist.

    FlytePropeller adds a term with `expressions` next to the terms of a PodTemplate. Terms are alternatives,
    so the added term would make the others ineffective.
    """
    others = [
        term
        for term in list_node_terms(spec)
        if term.get("matchFields")
        or any(each not in expressions for each in term.get("matchExpressions", ()))
    ]
    return _with_node_terms(spec, others) if others else spec


def with_requirements(spec: Fields, expressions: Sequence[Fields]) -> Fields:
    """Return the spec in which each node selector term also requires all these expressions."""
    if not expressions:
        return spec
    required = []
    for term in list_node_terms(spec) or [{}]:
        own = term.get("matchExpressions", ())
        missing = [each for each in expressions if each not in own]
        required.append({**term, "matchExpressions": [*own, *missing]})
    return _with_node_terms(spec, required)


def _with_node_terms(spec: Fields, terms: Sequence[Fields]) -> Fields:
    affinity = spec.get("affinity", {})
    node = affinity.get("nodeAffinity", {})
    selector = {**node.get(_REQUIRED, {}), "nodeSelectorTerms": terms}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**node, _REQUIRED: selector}}}


def with_accelerator(spec: Fields, accelerator: GPUAccelerator, settings: Settings) -> Fields:
    """Return a spec that requires nodes with this accelerator and tolerates their taints."""
    if added := _build_accelerator_tolerations(accelerator, settings):
        spec = {**spec, "tolerations": [*spec.get("tolerations", ()), *added]}
    return with_requirements(spec, build_accelerator_requirements(accelerator, settings))


def has_gpu(spec: Fields, settings: Settings) -> bool:
    """True if a container of the spec has a GPU limit."""
    name = settings.gpu_resource_name
    return any(name in each.get("resources", {}).get("limits", {}) for each in spec["containers"])


def build_accelerator_requirements(accelerator: GPUAccelerator, settings: Settings) -> list[Fields]:
    """Return the node label requirements for this accelerator."""
    requirements: list[Fields] = [
        {"key": label, "operator": "In", "values": [value]}
        for label, value in _list_node_labels(accelerator, settings)
    ]
    if accelerator.unpartitioned:
        unpartitioned = {"key": settings.gpu_partition_size_node_label, "operator": "DoesNotExist"}
        requirements.append(settings.gpu_unpartitioned_node_selector_requirement or unpartitioned)
    return requirements


def _build_accelerator_tolerations(accelerator: GPUAccelerator, settings: Settings) -> list[Fields]:
    tolerations: list[Fields] = [
        {"key": label, "operator": "Equal", "value": value, "effect": "NoSchedule"}
        for label, value in _list_node_labels(accelerator, settings)
    ]
    if accelerator.unpartitioned and settings.gpu_unpartitioned_toleration is not None:
        tolerations.append(settings.gpu_unpartitioned_toleration)
    return tolerations


def _list_node_labels(accelerator: GPUAccelerator, settings: Settings) -> list[tuple[str, str]]:
    labels = [(settings.gpu_device_node_label, accelerator.device)] if accelerator.device else []
    if accelerator.WhichOneof("partition_size_value") == "partition_size":
        labels.append((settings.gpu_partition_size_node_label, accelerator.partition_size))
    return labels


def with_resource_tolerations(spec: Fields, claimed: Iterable[str], settings: Settings) -> Fields:
    """Return a spec that tolerates the taints of nodes with certain resources.

    These are the resources in `claimed` that the setting ``add-tolerations-for-extended-resources`` names.
    """
    tolerations = list(spec.get("tolerations", ()))
    for name in sorted({*claimed} & {*settings.add_tolerations_for_extended_resources}):
        toleration = {"key": name, "operator": "Exists", "effect": "NoSchedule"}
        if toleration not in tolerations:
            tolerations.append(toleration)
    return {**spec, "tolerations": tolerations} if tolerations else spec
