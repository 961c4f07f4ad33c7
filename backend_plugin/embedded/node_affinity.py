"""Node selectors, required node affinity, taints and tolerations, matched as kube-scheduler does. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
        """True if a node with these labels matches."""
        test = _OPERATORS.get(self.operator)
        return test is not None and test(labels.get(self.key), self.values)


def _build_number_test(compare: Callable[[int, int], bool]) -> _LabelTest:
    """Return a function that compares a label and a value as integers, and is False if one is no integer."""

    def is_met(label: str | None, values: Sequence[str]) -> bool:
        if label is None or len(values) != 1 or not all(map(_INTEGER.fullmatch, (label, values[0]))):
            return False
        return compare(int(label), int(values[0]))

    return is_met


_OPERATORS: Final[Mapping[str, _LabelTest]] = {
    "In": lambda label, values: label in values,
    "NotIn": lambda label, values: label not in values,
    "Exists": lambda label, _: label is not None,
    "DoesNotExist": lambda label, _: label is None,
    "Gt": _build_number_test(gt),
    "Lt": _build_number_test(lt),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelectorTerm:
    """An alternative of the required node affinity; all its expressions must match."""

    labels: Sequence[Requirement] = ()
    fields: Sequence[Requirement] = ()

    def is_match(self, name: str, labels: Mapping[str, str]) -> bool:
        """True if the node matches. An empty term matches no node."""
        if not self.labels and not self.fields:
            return False
        fields = {"metadata.name": name}
        return all(each.is_match(labels) for each in self.labels) and all(
            each.is_match(fields) for each in self.fields
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A toleration of a pod."""

    key: str = ""
    """Empty matches every key."""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    """Empty matches every effect."""

    def can_tolerate(self, taint: Taint) -> bool:
        """True if this toleration matches the taint."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConstraints:
    """The node constraints of a pod, except resources."""

    selector: Mapping[str, str]
    terms: Sequence[NodeSelectorTerm] | None
    """The alternatives of the required node affinity; None allows every node."""
    tolerations: Sequence[Toleration]

    def is_match(self, name: str, labels: Mapping[str, str]) -> bool:
        """True if the selector and the affinity allow a node with this name and these labels."""
        if any(labels.get(key) != value for key, value in self.selector.items()):
            return False
        return self.terms is None or any(term.is_match(name, labels) for term in self.terms)

    def find_untolerated_taint(self, taints: Iterable[Taint]) -> Taint | None:
        """Return the first NoSchedule or NoExecute taint that the pod does not tolerate, or None."""
        for taint in taints:
            hard = taint.effect in ("NoSchedule", "NoExecute")
            if hard and not any(each.can_tolerate(taint) for each in self.tolerations):
                return taint
        return None


def read_node_constraints(spec: Manifest) -> NodeConstraints:
    """Read the node constraints from the spec of a pod."""
    affinity = get_mapping(spec, "affinity", "nodeAffinity")
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return NodeConstraints(
        selector=get_text_map(spec, "nodeSelector"),
        terms=_read_terms(required) if isinstance(required, Mapping) else None,
        tolerations=tuple(
            Toleration(
                key=get_text(each, "key"),
                operator=get_text(each, "operator") or "Equal",
                value=get_text(each, "value"),
                effect=get_text(each, "effect"),
            )
            for each in get_mappings(spec, "tolerations")
        ),
    )


def _read_terms(required: Manifest) -> Sequence[NodeSelectorTerm]:
    return tuple(
        NodeSelectorTerm(
            labels=read_requirements(each, "matchExpressions"),
            fields=read_requirements(each, "matchFields"),
        )
        for each in get_mappings(required, "nodeSelectorTerms")
    )


def read_requirements(term: Manifest, key: str) -> Sequence[Requirement]:
    """Read the expressions of a node selector term or a label selector."""
    return tuple(
        Requirement(
            key=get_text(each, "key"), operator=get_text(each, "operator"), values=_read_strings(each)
        )
        for each in get_mappings(term, key)
    )


def _read_strings(expression: Manifest) -> Sequence[str]:
    values = expression.get("values")
    return tuple(each for each in values if isinstance(each, str)) if isinstance(values, list | tuple) else ()


def read_taints(spec: Manifest) -> Sequence[Taint]:
    """Read the taints from the spec of a node."""
    return tuple(
        Taint(key=get_text(each, "key"), value=get_text(each, "value"), effect=get_text(each, "effect"))
        for each in get_mappings(spec, "taints")
    )
