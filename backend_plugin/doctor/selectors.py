"""Label selectors of NetworkPolicies."""

from collections.abc import Callable, Mapping
from typing import Final

from backend_plugin.core.reading import entries, text, texts
from backend_plugin.core.values import JsonValue, Manifest

_TESTS: Final[Mapping[str, Callable[[str | None, object], bool]]] = {
    "In": lambda label, values: isinstance(values, list | tuple) and label in values,
    "NotIn": lambda label, values: not (isinstance(values, list | tuple) and label in values),
    "Exists": lambda label, _: label is not None,
    "DoesNotExist": lambda label, _: label is None,
}


def matches(selector: JsonValue, labels: Mapping[str, str]) -> bool:
    """True if the selector matches the labels; an empty one matches everything, a missing one nothing."""
    if not isinstance(selector, Mapping):
        return False
    said = texts(selector, "matchLabels")
    if any(labels.get(key) != value for key, value in said.items()):
        return False
    return all(_holds(each, labels) for each in entries(selector, "matchExpressions"))


def _holds(expression: Manifest, labels: Mapping[str, str]) -> bool:
    test = _TESTS.get(text(expression, "operator"))
    return test is not None and test(labels.get(text(expression, "key")), expression.get("values"))
