"""Validates and completes the pods and services that an emulated operator creates.

Quotas, priority classes, service accounts and other admission plugins are not emulated.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from backend_plugin.core import pod_rules
from backend_plugin.core.pod_rules import containers as container_rules
from backend_plugin.core.pod_rules import name_rules
from backend_plugin.core.pod_rules.field_errors import (
    FieldError,
    build_duplicate_error,
    build_invalid_error,
    build_required_error,
    check_required_name,
)
from backend_plugin.core.reading import get_mapping, get_mappings
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission import metadata
from backend_plugin.embedded.admission.api_errors import build_unprocessable_resource

_DEFAULTS: Final[Mapping[str, Any]] = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}


def admit_pod(manifest: Manifest) -> Manifest:
    """Return a new pod in its stored form: with defaults, but without the uid, version and times.

    Raises:
        RequestRejected: If the API server would reject the pod.
    """
    fields = metadata.read_client_fields(manifest)
    spec: dict[str, Any] = {**get_mapping(manifest, "spec")}
    wrong = [
        *metadata.check_metadata(fields, name_rules.check_subdomain),
        *pod_rules.check_spec(spec),
        *container_rules.check_resources(spec),
    ]
    if wrong:
        raise build_unprocessable_resource("Pod", fields.get("name", ""), wrong)
    containers: dict[str, Any] = {
        kind: [_with_container_defaults(each) for each in spec[kind]]
        for kind in ("containers", "initContainers")
        if kind in spec
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": fields,
        "spec": {**_DEFAULTS, **spec, **containers},
        "status": {"phase": "Pending"},
    }


def _with_container_defaults(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container with default values: the pull policy, port protocols, and the limits as requests."""
    made = {"imagePullPolicy": _get_default_pull_policy(container), "resources": {}, **container}
    if container.get("ports"):
        made["ports"] = [{"protocol": "TCP", **port} for port in container["ports"]]
    resources = container.get("resources", {})
    if resources.get("limits"):
        requests = {**resources["limits"], **resources.get("requests", {})}
        made["resources"] = {**resources, "requests": requests}
    return made


def _get_default_pull_policy(container: Mapping[str, Any]) -> str:
    """Return `IfNotPresent` for an image with a digest or with a tag other than `latest`, else `Always`."""
    name = str(container.get("image", "")).rpartition("/")[2]
    tag = name.partition(":")[2]
    return "IfNotPresent" if "@" in name or tag not in ("", "latest") else "Always"


def admit_service(manifest: Manifest) -> Manifest:
    """Return a new headless service in its stored form, but without the uid, version and times.

    Raises:
        RequestRejected: If the API server would reject the service.
    """
    fields = metadata.read_client_fields(manifest)
    requested_ports: list[Mapping[str, Any]] = [*get_mappings(manifest, "spec", "ports")]
    wrong = [
        *metadata.check_metadata(fields, name_rules.check_dns_1035_label),
        *_check_ports(requested_ports),
    ]
    if wrong:
        raise build_unprocessable_resource("Service", fields.get("name", ""), wrong)
    ports = [{"protocol": "TCP", "targetPort": port["port"], **port} for port in requested_ports]
    spec = {**get_mapping(manifest, "spec"), "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": fields, "spec": spec}


def _check_ports(ports: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    taken: set[str] = set()
    numbers: set[int] = set()
    for index, port in enumerate(ports):
        path, name, number = f"spec.ports[{index}]", port.get("name", ""), port.get("port", 0)
        if name:
            yield from check_required_name(f"{path}.name", name, name_rules.check_dns_label, taken)
        elif len(ports) > 1:
            yield build_required_error(f"{path}.name")
        if not 1 <= number < 2**16:
            yield build_invalid_error(f"{path}.port", number, "must be between 1 and 65535, inclusive")
        if number in numbers:
            yield build_duplicate_error(path, {"port": number, "protocol": "TCP"})
        numbers.add(number)
