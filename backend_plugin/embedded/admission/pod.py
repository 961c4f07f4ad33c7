"""Validates and completes the pods that the controller creates. `containers` validates their containers.

Quotas, priority classes, service accounts and other admission plugins are not emulated.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from backend_plugin.core.reading import section, text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission import containers, metadata, names
from backend_plugin.embedded.admission.refusal import (
    Cause,
    duplicate,
    forbidden,
    invalid,
    required,
    unprocessable,
    unsupported,
)

_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_DNS_POLICIES: Final = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_OPERATORS: Final = ("Equal", "Exists")
_EFFECTS: Final = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_DEFAULTS: Final[Mapping[str, Any]] = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}


def admit_pod(manifest: Manifest) -> Manifest:
    """Return a new pod as it is stored, without the fields that the store adds.

    Raises:
        Refused: If the API server would reject the pod.
    """
    found = metadata.sent(manifest)
    spec = dict(section(manifest, "spec"))
    wrong = [*metadata.causes(found, names.subdomain), *_of_spec(spec)]
    if wrong:
        raise unprocessable("Pod", text(section(manifest, "metadata"), "name"), wrong)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": found,
        "spec": {**_DEFAULTS, **_with_defaults(spec)},
        "status": {"phase": "Pending"},
    }


def _with_defaults(spec: Mapping[str, Any]) -> dict[str, Any]:
    kinds = ("containers", "initContainers")
    return {
        **spec,
        **{kind: [_container(each) for each in spec[kind]] for kind in kinds if kind in spec},
    }


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container with defaults: a protocol for ports, and limits as requests."""
    made = {"imagePullPolicy": _pull_policy(container), "resources": {}, **container}
    if container.get("ports"):
        made["ports"] = [{"protocol": "TCP", **port} for port in container["ports"]]
    resources = container.get("resources", {})
    if resources.get("limits"):
        requests = {**resources["limits"], **resources.get("requests", {})}
        made["resources"] = {**resources, "requests": requests}
    return made


def _pull_policy(container: Mapping[str, Any]) -> str:
    """Return the default pull policy: an image without a fixed version is always pulled."""
    name = str(container.get("image", "")).rpartition("/")[2]
    tag = name.partition(":")[2]
    return "IfNotPresent" if "@" in name or tag not in ("", "latest") else "Always"


def _of_spec(spec: Mapping[str, Any]) -> Iterator[Cause]:
    yield from _of_volumes(spec.get("volumes", ()))
    yield from containers.causes(spec)
    policy = spec.get("restartPolicy", _DEFAULTS["restartPolicy"])
    if policy not in _RESTART_POLICIES:
        yield unsupported("spec.restartPolicy", policy, _RESTART_POLICIES)
    dns = spec.get("dnsPolicy", _DEFAULTS["dnsPolicy"])
    if dns not in _DNS_POLICIES:
        yield unsupported("spec.dnsPolicy", dns, _DNS_POLICIES)
    yield from _of_times(spec)
    for field in ("hostname", "subdomain"):
        for wrong in names.dns_label(spec[field]) if spec.get(field) else ():
            yield invalid(f"spec.{field}", spec[field], wrong)
    for field in ("serviceAccountName", "priorityClassName", "nodeName"):
        for wrong in names.subdomain(spec[field]) if spec.get(field) else ():
            yield invalid(f"spec.{field}", spec[field], wrong)
    yield from _of_node_selector(spec.get("nodeSelector", {}))
    for index, toleration in enumerate(spec.get("tolerations", ())):
        yield from _of_toleration(toleration, f"spec.tolerations[{index}]")


def _of_times(spec: Mapping[str, Any]) -> Iterator[Cause]:
    grace = spec.get("terminationGracePeriodSeconds", 0)
    if grace < 0:
        yield invalid("spec.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")
    deadline = spec.get("activeDeadlineSeconds", 1)
    if not 1 <= deadline < 2**31:
        detail = f"must be between 1 and {2**31 - 1}, inclusive"
        yield invalid("spec.activeDeadlineSeconds", deadline, detail)


def _of_volumes(volumes: list[Mapping[str, Any]]) -> Iterator[Cause]:
    taken: set[str] = set()
    for index, volume in enumerate(volumes):
        path, name = f"spec.volumes[{index}]", volume.get("name", "")
        sources = sorted(set(volume) - {"name"})
        if not name:
            yield required(f"{path}.name")
        for wrong in names.dns_label(name) if name else ():
            yield invalid(f"{path}.name", name, wrong)
        if name in taken:
            yield duplicate(f"{path}.name", name)
        taken.add(name)
        if not sources:
            yield required(path, "must specify a volume type")
        for source in sources[1:]:
            yield forbidden(f"{path}.{source}", "may not specify more than 1 volume type")


def _of_node_selector(selector: Mapping[str, str]) -> Iterator[Cause]:
    for key, value in selector.items():
        for wrong in names.qualified(key):
            yield invalid("spec.nodeSelector", key, wrong)
        for wrong in names.label_value(value):
            yield invalid("spec.nodeSelector", value, wrong)


def _of_toleration(toleration: Mapping[str, Any], path: str) -> Iterator[Cause]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "Equal")
    for wrong in names.qualified(key) if key else ():
        yield invalid(f"{path}.key", key, wrong)
    if not key and operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(f"{path}.operator", operator, detail)
    if operator not in _OPERATORS:
        yield unsupported(f"{path}.operator", operator, _OPERATORS)
    if operator == "Exists" and toleration.get("value"):
        detail = "value must be empty when `operator` is 'Exists'"
        yield invalid(f"{path}.operator", toleration["value"], detail)
    effect = toleration.get("effect")
    if effect and effect not in _EFFECTS:
        yield unsupported(f"{path}.effect", effect, _EFFECTS)
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid(f"{path}.effect", effect or "", detail)
