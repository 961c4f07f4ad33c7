"""Validates the containers of a pod. The other fields of the pod are validated in `pod`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from backend_plugin.core.quantity import Quantity, parse
from backend_plugin.core.shapes import amount_text
from backend_plugin.embedded.admission import names
from backend_plugin.embedded.admission.refusal import (
    Cause,
    duplicate,
    forbidden,
    invalid,
    not_found,
    required,
    unsupported,
)

_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_MOST_PORTS: Final = 65535
_SHARED: Final = ("cpu", "memory", "ephemeral-storage")


def causes(spec: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield the errors in the containers of a pod spec. The fields must have the types of the schema."""
    volumes = {volume.get("name") for volume in spec.get("volumes", ())}
    taken: set[str] = set()
    if not spec.get("containers"):
        yield required("spec.containers")
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind, ())):
            path = f"spec.{kind}[{index}]"
            yield from _of_name(container.get("name", ""), taken, path)
            yield from _of_container(container, path)
            yield from _of_mounts(container.get("volumeMounts", ()), volumes, f"{path}.volumeMounts")
            taken.add(container.get("name", ""))
    for index, container in enumerate(spec.get("containers", ())):
        if container.get("restartPolicy"):
            yield forbidden(
                f"spec.containers[{index}].restartPolicy", "may not be set for non-init containers"
            )


def _of_name(name: str, taken: set[str], path: str) -> Iterator[Cause]:
    if not name:
        yield required(f"{path}.name")
    for wrong in names.dns_label(name) if name else ():
        yield invalid(f"{path}.name", name, wrong)
    if name in taken:
        yield duplicate(f"{path}.name", name)


def _of_container(container: Mapping[str, Any], path: str) -> Iterator[Cause]:
    image = container.get("image", "")
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    policy = container.get("imagePullPolicy")
    if policy and policy not in _PULL_POLICIES:
        yield unsupported(f"{path}.imagePullPolicy", policy, _PULL_POLICIES)
    yield from _of_ports(container.get("ports", ()), f"{path}.ports")
    for index, variable in enumerate(container.get("env", ())):
        yield from _of_variable(variable, f"{path}.env[{index}]")
    yield from _of_resources(container.get("resources", {}), f"{path}.resources")
    for probe in _PROBES:
        if probe in container:
            yield from _of_probe(container[probe], f"{path}.{probe}")


def _of_ports(ports: Sequence[Mapping[str, Any]], path: str) -> Iterator[Cause]:
    taken: set[str] = set()
    for index, port in enumerate(ports):
        name, number = port.get("name", ""), port.get("containerPort", 0)
        for wrong in names.port_name(name) if name else ():
            yield invalid(f"{path}[{index}].name", name, wrong)
        if name in taken:
            yield duplicate(f"{path}[{index}].name", name)
        taken |= {name} - {""}
        if not number:
            yield required(f"{path}[{index}].containerPort")
        elif not 1 <= number <= _MOST_PORTS:
            yield invalid(f"{path}[{index}].containerPort", number, "must be between 1 and 65535, inclusive")
        if port.get("protocol", "TCP") not in _PROTOCOLS:
            yield unsupported(f"{path}[{index}].protocol", port["protocol"], _PROTOCOLS)


def _of_variable(variable: Mapping[str, Any], path: str) -> Iterator[Cause]:
    name = variable.get("name", "")
    if not name:
        yield required(f"{path}.name")
    for wrong in names.variable(name) if name else ():
        yield invalid(f"{path}.name", name, wrong)
    if "valueFrom" not in variable:
        return
    source = variable["valueFrom"]
    given = [each for each in _SOURCES if each in source]
    if variable.get("value"):
        yield invalid(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")
    elif not given:
        detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        yield invalid(f"{path}.valueFrom", "", detail)
    elif len(given) > 1:
        yield invalid(f"{path}.valueFrom", "", "may not have more than one field specified at a time")


def _of_mounts(mounts: Sequence[Mapping[str, Any]], volumes: set[str | None], path: str) -> Iterator[Cause]:
    taken: set[str] = set()
    for index, mount in enumerate(mounts):
        name, place = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield required(f"{path}[{index}].name")
        elif name not in volumes:
            yield not_found(f"{path}[{index}].name", name)
        if not place:
            yield required(f"{path}[{index}].mountPath")
        elif place in taken:
            yield invalid(f"{path}[{index}].mountPath", place, "must be unique")
        taken.add(place)
        if ".." in mount.get("subPath", "").split("/"):
            yield invalid(f"{path}[{index}].subPath", mount["subPath"], "must not contain '..'")


def _of_resources(resources: Mapping[str, Any], path: str) -> Iterator[Cause]:
    limits, requests = (_amounts(resources.get(kind, {})) for kind in ("limits", "requests"))
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _of_amount(name, amount, f"{path}.{kind}")
    for name, amount in requests.items():
        most = limits.get(name)
        if most is not None and most < amount:
            detail = f"must be less than or equal to {name} limit of {most.text}"
            yield invalid(f"{path}.requests", amount.text, detail)
        elif most is None and _is_extended(name):
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif most is not None and most != amount and _is_extended(name):
            yield invalid(f"{path}.requests", amount.text, f"must be equal to {name} limit of {most.text}")


def _of_amount(name: str, amount: Quantity, path: str) -> Iterator[Cause]:
    for wrong in names.qualified(name):
        yield invalid(path, name, wrong)
    if amount.nano < 0:
        yield invalid(f"{path}[{name}]", amount.text, "must be greater than or equal to 0")
    if "/" not in name and name not in _SHARED and not name.startswith("hugepages-"):
        yield invalid(f"{path}[{name}]", name, "must be a standard resource for containers")
    if _is_extended(name) and not amount.is_whole:
        yield invalid(f"{path}[{name}]", amount.text, "must be an integer")


def _of_probe(probe: Mapping[str, Any], path: str) -> Iterator[Cause]:
    given = [handler for handler in _HANDLERS if handler in probe]
    if not given:
        yield required(path, "must specify a handler type")
    for handler in given[1:]:
        yield forbidden(f"{path}.{handler}", "may not specify more than 1 handler type")


def _amounts(said: Mapping[str, Any]) -> dict[str, Quantity]:
    return {name: parse(amount_text(amount)) for name, amount in said.items()}


def _is_extended(name: str) -> bool:
    """True for the resources of device plugins, which are integers and cannot be overcommitted."""
    return "/" in name and not name.startswith("kubernetes.io/")
