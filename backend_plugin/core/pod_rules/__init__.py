"""Validates the spec of a pod by the rules of the API server. `schema_check` validates the field types."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from backend_plugin.core.pod_rules import containers, name_rules
from backend_plugin.core.pod_rules.field_errors import (
    FieldError,
    build_duplicate_error,
    build_forbidden_error,
    build_invalid_error,
    build_required_error,
    check_choice,
    check_name,
    check_required_name,
)
from backend_plugin.core.pod_schema import LIST_KEYS
from backend_plugin.core.schema_check import get_types
from backend_plugin.core.values import Fields

_CHOICES: Final = {
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
}
_NAMES: Final = {
    "hostname": name_rules.check_dns_label,
    "subdomain": name_rules.check_dns_label,
    "serviceAccountName": name_rules.check_subdomain,
    "priorityClassName": name_rules.check_subdomain,
    "nodeName": name_rules.check_subdomain,
}
_OPERATORS: Final = ("Equal", "Exists")
_EFFECTS: Final = ("NoExecute", "NoSchedule", "PreferNoSchedule")


def check_spec(spec: Fields) -> Iterator[FieldError]:
    """Yield the errors in the spec of a pod, except in its resources; all fields must have valid types.

    As in the API server, if a required field is missing or a list entry is repeated, only errors of these two
    kinds are reported.
    """
    yield from [*_check_object(spec, "PodSpec", "spec")] or _check_values(spec)


def _check_values(spec: Fields) -> Iterator[FieldError]:
    yield from _check_volumes(spec.get("volumes", ()))
    yield from containers.check_containers(spec)
    for field, known in _CHOICES.items():
        if field in spec:
            yield from check_choice(f"spec.{field}", spec[field], known)
    yield from _check_times(spec)
    for field, rule in _NAMES.items():
        yield from check_name(f"spec.{field}", spec.get(field, ""), rule)
    yield from _check_node_selector(spec.get("nodeSelector", {}))
    for index, toleration in enumerate(spec.get("tolerations", ())):
        yield from check_toleration(toleration, f"spec.tolerations[{index}]")


def _check_times(spec: Fields) -> Iterator[FieldError]:
    grace = spec.get("terminationGracePeriodSeconds", 0)
    if grace < 0:
        yield build_invalid_error(
            "spec.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0"
        )
    deadline = spec.get("activeDeadlineSeconds", 1)
    if not 1 <= deadline < 2**31:
        detail = f"must be between 1 and {2**31 - 1}, inclusive"
        yield build_invalid_error("spec.activeDeadlineSeconds", deadline, detail)


def _check_volumes(volumes: list[Fields]) -> Iterator[FieldError]:
    taken: set[str] = set()
    for index, volume in enumerate(volumes):
        path = f"spec.volumes[{index}]"
        yield from check_required_name(
            f"{path}.name", volume.get("name", ""), name_rules.check_dns_label, taken
        )
        sources = sorted(set(volume) - {"name"})
        if not sources:
            yield build_required_error(path, "must specify a volume type")
        for source in sources[1:]:
            yield build_forbidden_error(f"{path}.{source}", "may not specify more than 1 volume type")


def _check_node_selector(selector: Mapping[str, str]) -> Iterator[FieldError]:
    for key, value in selector.items():
        for wrong in name_rules.check_qualified_name(key):
            yield build_invalid_error("spec.nodeSelector", key, wrong)
        yield from check_name("spec.nodeSelector", value, name_rules.check_label_value)


def check_toleration(toleration: Fields, path: str) -> Iterator[FieldError]:
    """Yield the errors in a toleration; `path` is its path in the errors."""
    key, effect = toleration.get("key", ""), toleration.get("effect", "")
    yield from check_name(f"{path}.key", key, name_rules.check_qualified_name)
    yield from _check_operator(key, toleration, f"{path}.operator")
    if effect:
        yield from check_choice(f"{path}.effect", effect, _EFFECTS)
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield build_invalid_error(f"{path}.effect", effect, detail)


def _check_operator(key: str, toleration: Fields, path: str) -> Iterator[FieldError]:
    operator, value = toleration.get("operator", "Equal"), toleration.get("value")
    if not key and operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield build_invalid_error(path, operator, detail)
    yield from check_choice(path, operator, _OPERATORS)
    if operator == "Exists" and value:
        yield build_invalid_error(path, value, "value must be empty when `operator` is 'Exists'")


# ---- rules of the schema: required fields, and unique entries of lists


def _check_object(value: Fields, kind: str, path: str) -> Iterator[FieldError]:
    """Yield an error for each missing required field and repeated list entry in an object of type `kind`."""
    required, parts = _get_rules(kind)
    for name in sorted(required - value.keys()):
        yield build_required_error(f"{path}.{name}")
    for name in value:
        if name in parts:
            check = _check_list if parts[name].startswith("[") else _check_object
            yield from check(value[name], parts[name].strip("[]"), f"{path}.{name}")


def _check_list(items: Sequence[Fields], kind: str, path: str) -> Iterator[FieldError]:
    required, parts = _get_rules(kind)
    nested = frozenset(parts)
    for index, item in enumerate(items):
        if not required <= item.keys() or not nested.isdisjoint(item):  # Few variables have `valueFrom`.
            yield from _check_object(item, kind, f"{path}[{index}]")
    if keys := LIST_KEYS.get(kind):
        taken = set[tuple[Any, ...]]()
        for index, item in enumerate(items):
            key = tuple([item.get(name) for name in keys])
            if key in taken:
                yield build_duplicate_error(f"{path}[{index}]", dict(zip(keys, key, strict=True)))
            taken.add(key)


@cache
def _get_rules(kind: str) -> tuple[frozenset[str], Mapping[str, str]]:
    """Return the required fields of an object type, and the type of each field whose own type has rules."""
    fields = get_types()[kind]
    parts = {name: each.rstrip("!*") for name, each in fields.items()}
    required = frozenset(name for name, each in fields.items() if each.endswith("*"))
    return required, {name: part for name, part in parts.items() if _has_rules(part.strip("[]"))}


def _has_rules(kind: str) -> bool:
    return kind in get_types() and (kind in LIST_KEYS or any(_get_rules(kind)))
