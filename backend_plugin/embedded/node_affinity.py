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


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """An expression in a node selector term."""

    key: str
    operator: str
    values: Sequence[str] = ()

    def is_match(self, labels: Mapping[str, str]) -> bool:
        """True if a node with these labels satisfies the expression."""
        test = _OPERATORS.get(self.operator)
        return test is not None and test(labels.get(self.key), self.values)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConstraints:
    """The node selector, the required node affinity and the tolerations of a pod."""

    selector: Mapping[str, str]
    terms: Sequence[Manifest] | None
    """The required terms: a node must match one of them. An empty term matches no node; None allows all."""
    tolerations: Sequence[Manifest]

    def is_match(self, name: str, labels: Mapping[str, str]) -> bool:
        """True if the selector and the affinity allow a node with this name and these labels."""
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
    tests = [(each, known[key]) for key in known for each in read_requirements(term, key)]
    return bool(tests) and all(each.is_match(values) for each, values in tests)


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


def read_requirements(term: Manifest, key: str) -> Sequence[Requirement]:
    """Read the expressions in the field `key` of a node selector term or a label selector."""
    return tuple(
        Requirement(
            key=get_text(each, "key"),
            operator=get_text(each, "operator"),
            values=[str(value) for value in each.get("values") or ()],  # type: ignore[union-attr]
        )
        for each in get_mappings(term, key)
    )


def read_taints(spec: Manifest) -> Sequence[Taint]:
    """Read the taints from the spec of a node."""
    return tuple(
        Taint(key=get_text(each, "key"), value=get_text(each, "value"), effect=get_text(each, "effect"))
        for each in get_mappings(spec, "taints")
    )
