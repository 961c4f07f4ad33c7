"""The placement of a pod: tolerations, node selectors, affinity, and other pod-level fields of the platform.

The constraints for the accelerator of a task are in `pod_extended`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import ReplicaGroup, Run
from backend_plugin.core.settings import Settings
from backend_plugin.core.shapes import read, unknown, whole_numbers

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def placed(
    spec: Mapping[str, Any], run: Run, settings: Settings, *, resources: Iterable[str]
) -> Mapping[str, Any]:
    """Return the spec with the pod-level settings; `resources` are those that its containers claim."""
    interruptible = run.interruptible
    tolerations = [
        *of_resources(resources, settings),
        *(settings.interruptible_tolerations if interruptible else ()),
        *settings.default_tolerations,
        *spec.get("tolerations", ()),
    ]
    selector = {
        **settings.default_node_selector,
        **spec.get("nodeSelector", {}),
        **(settings.interruptible_node_selector if interruptible else {}),
    }
    said = {
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
    kept = {key: value for key, value in spec.items() if key not in said}
    added = {key: value for key, value in defaults.items() if value is not None and key not in spec}
    return {**kept, **added, **{key: value for key, value in said.items() if value}}


def of_resources(names: Iterable[str], settings: Settings) -> list[Mapping[str, Any]]:
    """Return the tolerations that the settings specify for resources."""
    return [each for name in sorted(names) for each in settings.resource_tolerations.get(name, ())]


def requirement(run: Run, settings: Settings) -> Mapping[str, Any] | None:
    """Return the node requirement of the platform for interruptible or for other attempts."""
    if run.interruptible:
        return settings.interruptible_node_selector_requirement
    return settings.non_interruptible_node_selector_requirement


def terms_of(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the alternative node selector terms that a pod requires."""
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    terms: Sequence[Mapping[str, Any]] = affinity.get(_REQUIRED, {}).get("nodeSelectorTerms", ())
    return terms


def tolerating(
    spec: Mapping[str, Any], added: Sequence[Mapping[str, Any]], base: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a rendered spec with more tolerations, inserted after those of the PodTemplate."""
    if not added:
        return spec
    said, first = list(spec.get("tolerations", ())), list(base.get("spec", {}).get("tolerations", ()))
    at = len(first) if said[: len(first)] == first else 0
    return {**spec, "tolerations": [*said[:at], *added, *said[at:]]}


def of_group(spec: Mapping[str, Any], group: ReplicaGroup) -> Mapping[str, Any]:
    """Return the spec with the placement of its role."""
    place = group.placement
    said: dict[str, Any] = {}
    if place.node_selector:
        said["nodeSelector"] = {**spec.get("nodeSelector", {}), **place.node_selector}
    if place.tolerations:
        said["tolerations"] = [*spec.get("tolerations", ()), *place.tolerations]
    if place.priority_class_name is not None:
        said["priorityClassName"] = place.priority_class_name
    return {**spec, **said}


def template_of(group: ReplicaGroup, problems: list[Problem]) -> Mapping[str, Any]:
    """Return the pod template of the role, which lies below the task's pod; empty without one."""
    said = group.placement.pod_template
    if said is None:
        return {}
    path = path_of(group)
    written = whole_numbers(said)
    template, found = read(written, "PodTemplateSpec", path)
    problems.extend(found or (_unknown(path, name) for name in unknown(written, "PodTemplateSpec")))
    return template or {}


def path_of(group: ReplicaGroup) -> str:
    """Return the path of the pod template of a role in the task template."""
    return f"custom.kfpytorch.{group.role.value.lower()}.podTemplate"


def _unknown(path: str, name: str) -> Problem:
    # Flyte ignores unknown fields. Only this server reads the template, so a wrong name is an error of the
    # author.
    remedy = "correct its name, or leave it out; kubectl explain pod.spec lists the fields"
    return Problem(field=f"{path}.{name}", value="...", message="is not a field of a pod", remedy=remedy)


def without_escapes(spec: Mapping[str, Any], expressions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the spec without terms that require only `expressions`, if other terms exist.

    FlytePropeller adds such a term next to those of a PodTemplate. Terms are alternatives, so it would make
    the others ineffective.
    """
    others = [term for term in terms_of(spec) if term.get("matchFields") or _rest(term, expressions)]
    return _with_terms(spec, others) if others else spec


def requiring(spec: Mapping[str, Any], expressions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the spec in which each node selector term also requires all these expressions."""
    required = [
        {**term, "matchExpressions": [*term.get("matchExpressions", ()), *_missing(term, expressions)]}
        for term in terms_of(spec) or [{}]
    ]
    return _with_terms(spec, required)


def _with_terms(spec: Mapping[str, Any], terms: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    affinity = spec.get("affinity", {})
    node = affinity.get("nodeAffinity", {})
    selector = {**node.get(_REQUIRED, {}), "nodeSelectorTerms": terms}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**node, _REQUIRED: selector}}}


def _rest(term: Mapping[str, Any], expressions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [each for each in term.get("matchExpressions", ()) if each not in expressions]


def _missing(term: Mapping[str, Any], expressions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [each for each in expressions if each not in term.get("matchExpressions", ())]
