"""Node selectors, required node affinity, taints and tolerations, matched as kube-scheduler does. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import gt, lt
from typing import Final, TypeAlias

from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_text_map
from backend_plugin.core.values import Manifest

_LabelTest: TypeAlias = Callable[[str | None, Sequence[str]], bool]
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


def _compare(test: Callable[[int, int], bool], label: str | None, values: Sequence[str]) -> bool:
    if label is None or len(values) != 1 or not all(map(_INTEGER.fullmatch, (label, values[0]))):
        return False
    return test(int(label), int(values[0]))


_OPERATORS: Final[Mapping[str, _LabelTest]] = {
    "In": lambda label, values: label in values,
    "NotIn": lambda label, values: label not in values,
    "Exists": lambda label, _: label is not None,
    "DoesNotExist": lambda label, _: label is None,
    "Gt": partial(_compare, gt),
    "Lt": partial(_compare, lt),
}


def is_requirement_met(requirement: Manifest, labels: Mapping[str, str]) -> bool:
    """True if `labels` satisfy `requirement`, an expression of a node selector term or a label selector."""
    test = _OPERATORS.get(get_text(requirement, "operator"))
    values = [str(each) for each in requirement.get("values") or ()]  # type: ignore[union-attr]
    return test is not None and test(labels.get(get_text(requirement, "key")), values)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConstraints:
    """The node selector, the required node affinity and the tolerations of a pod."""

    selector: Mapping[str, str]
    terms: Sequence[Manifest] | None
    """The terms of the required affinity: a node must match one of them. An empty term matches no node. None
    allows all nodes."""
    tolerations: Sequence[Manifest]

    def is_match(self, name: str, labels: Mapping[str, str]) -> bool:
        """True if the node selector and the node affinity allow a node with this name and these labels."""
        if not self.selector.items() <= labels.items():
            return False
        return self.terms is None or any(_is_term_match(term, name, labels) for term in self.terms)

    def find_untolerated_taint(self, taints: Iterable[Taint]) -> Taint | None:
        """Return the first NoSchedule or NoExecute taint that the pod does not tolerate, or None."""
        for taint in taints:
            hard = taint.effect in ("NoSchedule", "NoExecute")
            if hard and not any(_can_tolerate(each, taint) for each in self.tolerations):
                return taint
        return None


def _is_term_match(term: Manifest, name: str, labels: Mapping[str, str]) -> bool:
    known = {"matchExpressions": labels, "matchFields": {"metadata.name": name}}
    tests = [is_requirement_met(each, known[key]) for key in known for each in get_mappings(term, key)]
    return bool(tests) and all(tests)


def _can_tolerate(toleration: Manifest, taint: Taint) -> bool:
    """True if the toleration matches the taint. An empty key or effect matches every key or effect."""
    key, effect = get_text(toleration, "key"), get_text(toleration, "effect")
    if effect not in ("", taint.effect) or key not in ("", taint.key):
        return False
    return toleration.get("operator") == "Exists" or (
        bool(key) and get_text(toleration, "value") == taint.value
    )


def read_node_constraints(spec: Manifest) -> NodeConstraints:
    """Read the node constraints from the spec of a pod."""
    required = get_mapping(spec, "affinity", "nodeAffinity").get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return NodeConstraints(
        selector=get_text_map(spec, "nodeSelector"),
        terms=get_mappings(required, "nodeSelectorTerms") if isinstance(required, Mapping) else None,
        tolerations=get_mappings(spec, "tolerations"),
    )


def read_taints(spec: Manifest) -> Sequence[Taint]:
    """Read the taints from the spec of a node."""
    return tuple(
        Taint(key=get_text(each, "key"), value=get_text(each, "value"), effect=get_text(each, "effect"))
        for each in get_mappings(spec, "taints")
    )
