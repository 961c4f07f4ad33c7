"""The rules of the API server for the spec of a pod, beyond the types of its fields."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from backend_plugin.core.pod_rules import containers, name_rules
from backend_plugin.core.pod_rules.field_errors import (
    FieldError,
    build_duplicate_error,
    build_forbidden_error,
    build_invalid_error,
    build_required_error,
    build_unsupported_error,
)

_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_DNS_POLICIES: Final = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_OPERATORS: Final = ("Equal", "Exists")
_EFFECTS: Final = ("NoExecute", "NoSchedule", "PreferNoSchedule")


def check_spec(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors in the spec of a pod. The fields must have the types of the schema."""
    yield from _check_volumes(spec.get("volumes", ()))
    yield from containers.check_containers(spec)
    policy = spec.get("restartPolicy", "Always")
    if policy not in _RESTART_POLICIES:
        yield build_unsupported_error("spec.restartPolicy", policy, _RESTART_POLICIES)
    dns = spec.get("dnsPolicy", "ClusterFirst")
    if dns not in _DNS_POLICIES:
        yield build_unsupported_error("spec.dnsPolicy", dns, _DNS_POLICIES)
    yield from _check_times(spec)
    for field in ("hostname", "subdomain"):
        for wrong in name_rules.check_dns_label(spec[field]) if spec.get(field) else ():
            yield build_invalid_error(f"spec.{field}", spec[field], wrong)
    for field in ("serviceAccountName", "priorityClassName", "nodeName"):
        for wrong in name_rules.check_subdomain(spec[field]) if spec.get(field) else ():
            yield build_invalid_error(f"spec.{field}", spec[field], wrong)
    yield from _check_node_selector(spec.get("nodeSelector", {}))
    for index, toleration in enumerate(spec.get("tolerations", ())):
        yield from _check_toleration(toleration, f"spec.tolerations[{index}]")


def _check_times(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    grace = spec.get("terminationGracePeriodSeconds", 0)
    if grace < 0:
        yield build_invalid_error(
            "spec.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0"
        )
    deadline = spec.get("activeDeadlineSeconds", 1)
    if not 1 <= deadline < 2**31:
        detail = f"must be between 1 and {2**31 - 1}, inclusive"
        yield build_invalid_error("spec.activeDeadlineSeconds", deadline, detail)


def _check_volumes(volumes: list[Mapping[str, Any]]) -> Iterator[FieldError]:
    taken: set[str] = set()
    for index, volume in enumerate(volumes):
        path, name = f"spec.volumes[{index}]", volume.get("name", "")
        sources = sorted(set(volume) - {"name"})
        if not name:
            yield build_required_error(f"{path}.name")
        for wrong in name_rules.check_dns_label(name) if name else ():
            yield build_invalid_error(f"{path}.name", name, wrong)
        if name in taken:
            yield build_duplicate_error(f"{path}.name", name)
        taken.add(name)
        if not sources:
            yield build_required_error(path, "must specify a volume type")
        for source in sources[1:]:
            yield build_forbidden_error(f"{path}.{source}", "may not specify more than 1 volume type")


def _check_node_selector(selector: Mapping[str, str]) -> Iterator[FieldError]:
    for key, value in selector.items():
        for wrong in name_rules.check_qualified_name(key):
            yield build_invalid_error("spec.nodeSelector", key, wrong)
        for wrong in name_rules.check_label_value(value):
            yield build_invalid_error("spec.nodeSelector", value, wrong)


def _check_toleration(toleration: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "Equal")
    for wrong in name_rules.check_qualified_name(key) if key else ():
        yield build_invalid_error(f"{path}.key", key, wrong)
    if not key and operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield build_invalid_error(f"{path}.operator", operator, detail)
    if operator not in _OPERATORS:
        yield build_unsupported_error(f"{path}.operator", operator, _OPERATORS)
    if operator == "Exists" and toleration.get("value"):
        detail = "value must be empty when `operator` is 'Exists'"
        yield build_invalid_error(f"{path}.operator", toleration["value"], detail)
    effect = toleration.get("effect")
    if effect and effect not in _EFFECTS:
        yield build_unsupported_error(f"{path}.effect", effect, _EFFECTS)
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield build_invalid_error(f"{path}.effect", effect or "", detail)
