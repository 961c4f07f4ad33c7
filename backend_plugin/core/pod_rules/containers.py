"""Validates the containers of a pod. The package `pod_rules` validates the other fields."""

from collections.abc import Iterator, Sequence
from typing import Final

from backend_plugin.core.pod_rules import name_rules
from backend_plugin.core.pod_rules.field_errors import (
    FieldError,
    build_duplicate_error,
    build_forbidden_error,
    build_invalid_error,
    build_required_error,
    check_choice,
    check_required_name,
)
from backend_plugin.core.schema_check import parse_amounts
from backend_plugin.core.values import Fields
from kfpytorch_common.quantity import Quantity

_KINDS: Final = ("containers", "initContainers")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_MOST_PORTS: Final = 65535
_SHARED: Final = ("cpu", "memory", "ephemeral-storage")


def check_containers(spec: Fields) -> Iterator[FieldError]:
    """Yield the errors in the containers of a pod spec, except those in their resources.

    The types of the fields must be valid: validate them with `schema_check` first.
    """
    volumes = {volume.get("name") for volume in spec.get("volumes", ())}
    taken: set[str] = set()
    if not spec.get("containers"):
        yield build_required_error("spec.containers")
    for kind, path, container in _iter_containers(spec):
        name = container.get("name", "")
        yield from check_required_name(f"{path}.name", name, name_rules.check_dns_label, taken)
        yield from _check_container(container, path)
        yield from _check_mounts(container.get("volumeMounts", ()), volumes, f"{path}.volumeMounts")
        if kind == "containers" and container.get("restartPolicy"):
            yield build_forbidden_error(f"{path}.restartPolicy", "may not be set for non-init containers")


def _iter_containers(spec: Fields) -> Iterator[tuple[str, str, Fields]]:
    """Yield each container with its kind (a key of the pod spec) and its path."""
    for kind in _KINDS:
        for index, container in enumerate(spec.get(kind, ())):
            yield kind, f"spec.{kind}[{index}]", container


def _check_container(container: Fields, path: str) -> Iterator[FieldError]:
    image = container.get("image", "")
    if not image:
        yield build_required_error(f"{path}.image")
    elif image != image.strip():
        yield build_invalid_error(f"{path}.image", image, "must not have leading or trailing whitespace")
    if policy := container.get("imagePullPolicy"):
        yield from check_choice(f"{path}.imagePullPolicy", policy, PULL_POLICIES)
    yield from _check_ports(container.get("ports", ()), f"{path}.ports")
    yield from _check_variables(container.get("env", ()), f"{path}.env")
    for probe in _PROBES:
        if probe in container:
            yield from _check_probe(container[probe], f"{path}.{probe}")


def _check_ports(ports: Sequence[Fields], path: str) -> Iterator[FieldError]:
    taken: set[str] = set()
    names: dict[tuple[int, str], str | None] = {}
    for index, port in enumerate(ports):
        at, name, number = f"{path}[{index}]", port.get("name"), port.get("containerPort", 0)
        key = (number, port.get("protocol", "TCP"))
        # `plan` removes a repeated port only if its name is the same, too. The API server rejects the others.
        if names.setdefault(key, name) != name:
            yield build_duplicate_error(at, {"containerPort": key[0], "protocol": key[1]})
        if name:
            yield from check_required_name(f"{at}.name", name, name_rules.check_port_name, taken)
        if not number:
            yield build_required_error(f"{at}.containerPort")
        elif not 1 <= number <= _MOST_PORTS:
            yield build_invalid_error(f"{at}.containerPort", number, "must be between 1 and 65535, inclusive")
        yield from check_choice(f"{at}.protocol", port.get("protocol", "TCP"), _PROTOCOLS)


def _check_variables(variables: Sequence[Fields], path: str) -> Iterator[FieldError]:
    for index, variable in enumerate(variables):
        name, at = variable.get("name", ""), f"{path}[{index}]"
        if not name:
            yield build_required_error(f"{at}.name")
        for wrong in name_rules.check_variable_name(name):
            yield build_invalid_error(f"{at}.name", name, wrong)
        if "valueFrom" in variable:
            yield from _check_source(variable, at)


def _check_source(variable: Fields, path: str) -> Iterator[FieldError]:
    kinds = [each for each in _SOURCES if each in variable["valueFrom"]]
    if variable.get("value"):
        detail = "may not be specified when `value` is not empty"
    elif not kinds:
        detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
    elif len(kinds) > 1:
        detail = "may not have more than one field specified at a time"
    else:
        return
    yield build_invalid_error(f"{path}.valueFrom", "", detail)


def _check_mounts(mounts: Sequence[Fields], volumes: set[str | None], path: str) -> Iterator[FieldError]:
    taken: set[str] = set()
    for index, mount in enumerate(mounts):
        at, name = f"{path}[{index}]", mount.get("name", "")
        if not name:
            yield build_required_error(f"{at}.name")
        elif name not in volumes:
            yield build_invalid_error(f"{at}.name", name, "is not a volume of the pod")
        yield from _check_mount_path(mount.get("mountPath", ""), taken, f"{at}.mountPath")
        if ".." in mount.get("subPath", "").split("/"):
            yield build_invalid_error(f"{at}.subPath", mount["subPath"], "must not contain '..'")


def _check_mount_path(place: str, taken: set[str], path: str) -> Iterator[FieldError]:
    if not place:
        yield build_required_error(path)
    elif place in taken:
        yield build_invalid_error(path, place, "must be unique")
    taken.add(place)


def check_resources(spec: Fields) -> Iterator[FieldError]:
    """Yield the errors in the resources of the containers of a pod spec."""
    for _, path, container in _iter_containers(spec):
        yield from _check_resources(container.get("resources", {}), f"{path}.resources")


def _check_resources(resources: Fields, path: str) -> Iterator[FieldError]:
    limits = parse_amounts(resources.get("limits", {}))
    requests = parse_amounts(resources.get("requests", {}))
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _check_amount(name, amount, f"{path}.{kind}")
    for name, amount in requests.items():
        if name in limits:
            yield from _check_request(name, amount, limits[name], f"{path}.requests")
        elif _is_extended(name):
            yield build_required_error(f"{path}.limits", "Limit must be set for non overcommitable resources")


def _check_request(name: str, amount: Quantity, limit: Quantity, path: str) -> Iterator[FieldError]:
    if limit < amount:
        detail = f"must be less than or equal to {name} limit of {limit.text}"
        yield build_invalid_error(path, amount.text, detail)
    elif limit != amount and _is_extended(name):
        yield build_invalid_error(path, amount.text, f"must be equal to {name} limit of {limit.text}")


def _check_amount(name: str, amount: Quantity, path: str) -> Iterator[FieldError]:
    yield from _check_resource_name(name, path)
    if amount.nano < 0:
        yield build_invalid_error(f"{path}[{name}]", amount.text, "must be greater than or equal to 0")
    if _is_extended(name) and not amount.is_whole:
        yield build_invalid_error(f"{path}[{name}]", amount.text, "must be an integer")


def _check_resource_name(name: str, path: str) -> Iterator[FieldError]:
    for wrong in name_rules.check_qualified_name(name):
        yield build_invalid_error(path, name, wrong)
    if "/" not in name and name not in _SHARED and not name.startswith("hugepages-"):
        yield build_invalid_error(f"{path}[{name}]", name, "must be a standard resource for containers")


def _check_probe(probe: Fields, path: str) -> Iterator[FieldError]:
    handlers = [handler for handler in _HANDLERS if handler in probe]
    if not handlers:
        yield build_required_error(path, "must specify a handler type")
    for handler in handlers[1:]:
        yield build_forbidden_error(f"{path}.{handler}", "may not specify more than 1 handler type")


def _is_extended(name: str) -> bool:
    """True for the resources of device plugins, which are integers and cannot be overcommitted."""
    return "/" in name and not name.startswith("kubernetes.io/")
