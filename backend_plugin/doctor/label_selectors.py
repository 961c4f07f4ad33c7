"""Label selectors of NetworkPolicies."""

from collections.abc import Callable, Mapping
from typing import Final

from backend_plugin.core.reading import get_mappings, get_text, get_text_map
from backend_plugin.core.values import JsonValue, Manifest

_TESTS: Final[Mapping[str, Callable[[str | None, object], bool]]] = {
    "In": lambda label, values: isinstance(values, list | tuple) and label in values,
    "NotIn": lambda label, values: not (isinstance(values, list | tuple) and label in values),
    "Exists": lambda label, _: label is not None,
    "DoesNotExist": lambda label, _: label is None,
}


def is_match(selector: JsonValue, labels: Mapping[str, str]) -> bool:
    """True if the selector matches the labels; an empty one matches everything, a missing one nothing."""
    if not isinstance(selector, Mapping):
        return False
    said = get_text_map(selector, "matchLabels")
    if any(labels.get(key) != value for key, value in said.items()):
        return False
    return all(_is_requirement_met(each, labels) for each in get_mappings(selector, "matchExpressions"))


def _is_requirement_met(expression: Manifest, labels: Mapping[str, str]) -> bool:
    test = _TESTS.get(get_text(expression, "operator"))
    return test is not None and test(labels.get(get_text(expression, "key")), expression.get("values"))
