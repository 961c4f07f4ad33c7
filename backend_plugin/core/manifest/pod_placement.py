"""Placement of a pod: tolerations, node selectors, affinity, and other pod-level fields of the platform."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import Attempt, ReplicaGroup
from backend_plugin.core.schema_check import convert_value, iter_unknown_fields, normalize_json
from backend_plugin.core.settings import Settings

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def with_pod_settings(
    spec: Mapping[str, Any], run: Attempt, settings: Settings, *, resources: Iterable[str]
) -> Mapping[str, Any]:
    """Return the spec with the pod-level settings; `resources` are those that its containers claim."""
    interruptible = run.is_interruptible
    tolerations = [
        *list_resource_tolerations(resources, settings),
        *(settings.interruptible_tolerations if interruptible else ()),
        *settings.default_tolerations,
        *spec.get("tolerations", ()),
    ]
    selector = {
        **settings.default_node_selector,
        **spec.get("nodeSelector", {}),
        **(settings.interruptible_node_selector if interruptible else {}),
    }
    overrides = {
        "restartPolicy": spec.get("restartPolicy") or "Never",
        "serviceAccountName": spec.get("serviceAccountName") or run.service_account,
        "schedulerName": spec.get("schedulerName") or settings.scheduler_name,
        "tolerations": tolerations,
        "nodeSelector": selector,
        "hostNetwork": spec.get("hostNetwork")
        if settings.enable_host_networking_pod is None
        else settings.enable_host_networking_pod,
    }
    # A field that is present but empty counts as specified.
    defaults = {
        "affinity": settings.default_affinity or {},
        "securityContext": settings.default_pod_security_context,
        "dnsConfig": settings.default_pod_dns_config,
    }
    others = {key: value for key, value in spec.items() if key not in overrides}
    added = {key: value for key, value in defaults.items() if value is not None and key not in spec}
    return {**others, **added, **{key: value for key, value in overrides.items() if value}}


def list_resource_tolerations(names: Iterable[str], settings: Settings) -> list[Mapping[str, Any]]:
    """Return the tolerations that the settings specify for resources."""
    return [each for name in sorted(names) for each in settings.resource_tolerations.get(name, ())]


def find_node_requirement(run: Attempt, settings: Settings) -> Mapping[str, Any] | None:
    """Return the node requirement of the platform for interruptible or for other attempts."""
    if run.is_interruptible:
        return settings.interruptible_node_selector_requirement
    return settings.non_interruptible_node_selector_requirement


def list_node_terms(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the alternative node selector terms that a pod requires."""
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    terms: Sequence[Mapping[str, Any]] = affinity.get(_REQUIRED, {}).get("nodeSelectorTerms", ())
    return terms


def with_tolerations(
    spec: Mapping[str, Any], added: Sequence[Mapping[str, Any]], base: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a rendered spec with more tolerations, inserted after those of the PodTemplate."""
    if not added:
        return spec
    tolerations, first = list(spec.get("tolerations", ())), list(base.get("spec", {}).get("tolerations", ()))
    at = len(first) if tolerations[: len(first)] == first else 0
    return {**spec, "tolerations": [*tolerations[:at], *added, *tolerations[at:]]}


def with_role_placement(spec: Mapping[str, Any], group: ReplicaGroup) -> Mapping[str, Any]:
    """Return the spec with the placement of its role."""
    place = group.placement
    overrides: dict[str, Any] = {}
    if place.node_selector:
        overrides["nodeSelector"] = {**spec.get("nodeSelector", {}), **place.node_selector}
    if place.tolerations:
        overrides["tolerations"] = [*spec.get("tolerations", ()), *place.tolerations]
    if place.priority_class_name is not None:
        overrides["priorityClassName"] = place.priority_class_name
    return {**spec, **overrides}


def read_role_template(group: ReplicaGroup, problems: list[Problem]) -> Mapping[str, Any]:
    """Return the pod template of the role, whose values the task's pod overrides; empty without one."""
    pod_template = group.placement.pod_template
    if pod_template is None:
        return {}
    path = get_template_path(group)
    written = normalize_json(pod_template)
    template, problems_of_template = convert_value(written, "PodTemplateSpec", path)
    problems.extend(
        problems_of_template
        or (_unknown_field_problem(path, name) for name in iter_unknown_fields(written, "PodTemplateSpec"))
    )
    return template or {}


def get_template_path(group: ReplicaGroup) -> str:
    """Return the path of the pod template of a role in the task template."""
    return f"custom.kfpytorch.{group.role.value.lower()}.podTemplate"


def _unknown_field_problem(path: str, name: str) -> Problem:
    # Flyte ignores unknown fields. Only this server reads the template, so a wrong name is an error of the
    # author.
    remedy = "correct its name, or leave it out; kubectl explain pod.spec lists the fields"
    return Problem(field=f"{path}.{name}", value="...", message="is not a field of a pod", remedy=remedy)


def without_weaker_terms(
    spec: Mapping[str, Any], expressions: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return the spec without terms that require only `expressions`, if other terms exist.

    FlytePropeller adds such a term next to those of a PodTemplate. Terms are alternatives, so it would make
    the others ineffective.
    """
    others = [
        term
        for term in list_node_terms(spec)
        if term.get("matchFields") or _list_other_expressions(term, expressions)
    ]
    return _with_node_terms(spec, others) if others else spec


def with_requirements(spec: Mapping[str, Any], expressions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the spec in which each node selector term also requires all these expressions."""
    required = [
        {
            **term,
            "matchExpressions": [
                *term.get("matchExpressions", ()),
                *_list_missing_expressions(term, expressions),
            ],
        }
        for term in list_node_terms(spec) or [{}]
    ]
    return _with_node_terms(spec, required)


def _with_node_terms(spec: Mapping[str, Any], terms: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    affinity = spec.get("affinity", {})
    node = affinity.get("nodeAffinity", {})
    selector = {**node.get(_REQUIRED, {}), "nodeSelectorTerms": terms}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**node, _REQUIRED: selector}}}


def _list_other_expressions(
    term: Mapping[str, Any], expressions: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    return [each for each in term.get("matchExpressions", ()) if each not in expressions]


def _list_missing_expressions(
    term: Mapping[str, Any], expressions: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    return [each for each in expressions if each not in term.get("matchExpressions", ())]
