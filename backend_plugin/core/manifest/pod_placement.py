"""Where a pod may run: tolerations, selectors, affinity, and what else the platform says of whole pods.

Lives here: the platform's say. Which devices a task names is in `pod_extended`.
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
    """A pod's spec with the platform's say; ``resources`` are those that its containers claim."""
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
    # Present, even when empty, means said.
    defaults = {
        "affinity": settings.default_affinity or {},
        "securityContext": settings.default_pod_security_context,
        "dnsConfig": settings.default_pod_dns_config,
    }
    kept = {key: value for key, value in spec.items() if key not in said}
    added = {key: value for key, value in defaults.items() if value is not None and key not in spec}
    return {**kept, **added, **{key: value for key, value in said.items() if value}}


def of_resources(names: Iterable[str], settings: Settings) -> list[Mapping[str, Any]]:
    """The tolerations that come with resources."""
    return [each for name in sorted(names) for each in settings.resource_tolerations.get(name, ())]


def requirement(run: Run, settings: Settings) -> Mapping[str, Any] | None:
    """What the platform requires of nodes for attempts that may, or may not, be preempted."""
    if run.interruptible:
        return settings.interruptible_node_selector_requirement
    return settings.non_interruptible_node_selector_requirement


def terms_of(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The alternatives that a pod requires of its node."""
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    terms: Sequence[Mapping[str, Any]] = affinity.get(_REQUIRED, {}).get("nodeSelectorTerms", ())
    return terms


def tolerating(
    spec: Mapping[str, Any], added: Sequence[Mapping[str, Any]], base: Mapping[str, Any]
) -> Mapping[str, Any]:
    """A rendered spec with more of the tolerations that stand after the PodTemplate's."""
    if not added:
        return spec
    said, first = list(spec.get("tolerations", ())), list(base.get("spec", {}).get("tolerations", ()))
    at = len(first) if said[: len(first)] == first else 0
    return {**spec, "tolerations": [*said[:at], *added, *said[at:]]}


def of_group(spec: Mapping[str, Any], group: ReplicaGroup) -> Mapping[str, Any]:
    """A spec with what its role says about its place."""
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
    """The pod template that the role puts under the task's pod, empty without one."""
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
    # Flyte passes over such a field; only we read this template, and its author means what it says.
    remedy = "correct its name, or leave it out; kubectl explain pod.spec lists what there is"
    return Problem(field=f"{path}.{name}", value="...", message="is not a field of a pod", remedy=remedy)


def without_escapes(spec: Mapping[str, Any], expressions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """A spec without the alternatives that require nothing else than these, where there are others.

    Propeller adds one such beside those of a PodTemplate, and thereby undoes them all.
    """
    others = [term for term in terms_of(spec) if term.get("matchFields") or _rest(term, expressions)]
    return _with_terms(spec, others) if others else spec


def requiring(spec: Mapping[str, Any], expressions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """A spec each of whose alternatives also requires all these expressions."""
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
