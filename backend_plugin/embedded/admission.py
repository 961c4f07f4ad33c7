"""Adds defaults to new pods and custom resources, and rejects invalid ones, as the API server does.

Jobs are not validated again: only the kfpytorch server creates jobs, and `core.pipeline.plan` has validated
them. Quotas, priority classes, service accounts and other admission plugins are not emulated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from backend_plugin.core import pod_rules
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.pod_rules import containers as container_rules
from backend_plugin.core.pod_rules.field_errors import FieldError
from backend_plugin.core.pod_schema import PARTS
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.schema_check import parse_types
from backend_plugin.core.values import Manifest

_DEFAULTS: Final[Mapping[str, Any]] = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}


def admit_pod(manifest: Manifest) -> Manifest:
    """Return a new pod with the defaults of the API server. The store adds the uid, version and times.

    The pod is validated here, because `core.pipeline.plan` does not check all rules of the API server: in a
    real cluster, a webhook may still correct the pod.

    Raises:
        RequestRejected: If the API server would reject the spec of the pod.
    """
    spec: dict[str, Any] = {**get_mapping(manifest, "spec")}
    if wrong := [*pod_rules.check_spec(spec), *container_rules.check_resources(spec)]:
        raise build_unprocessable_resource(manifest, wrong)
    containers: dict[str, Any] = {
        kind: [_with_resources(each) for each in spec[kind]]
        for kind in ("containers", "initContainers")
        if kind in spec
    }
    return {**manifest, "spec": {**_DEFAULTS, **spec, **containers}, "status": {"phase": "Pending"}}


def _with_resources(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container; a resource with a limit but no request gets the limit as its request."""
    resources = {**container.get("resources", {})}
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    return {**container, "resources": resources}


def build_unprocessable_resource(manifest: Manifest, causes: Sequence[FieldError]) -> RequestRejected:
    """Return the API server's error for an object with invalid fields."""
    group, slash, _ = get_text(manifest, "apiVersion").partition("/")
    kind = f"{manifest['kind']}.{group}" if slash else manifest["kind"]
    name = get_text(manifest, "metadata", "name")
    texts = list(dict.fromkeys(map(str, causes)))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return RequestRejected(422, "Invalid", f'{kind} "{name}" is invalid: {text}')


_POD_DEFAULTS: Final[Mapping[str, Mapping[str, str | bool]]] = {
    "ContainerPort": {"protocol": "TCP"},
    "GRPCAction": {"service": ""},
    "SecretEnvSource": {"name": ""},
    "ConfigMapEnvSource": {"name": ""},
    "SecretKeySelector": {"name": ""},
    "ConfigMapKeySelector": {"name": ""},
    "ConfigMapVolumeSource": {"name": ""},
    "ConfigMapProjection": {"name": ""},
    "SecretProjection": {"name": ""},
    "LocalObjectReference": {"name": ""},
    "AzureDiskVolumeSource": {"fsType": "ext4", "readOnly": False},
    "RBDVolumeSource": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "ScaleIOVolumeSource": {"fsType": "xfs", "storageMode": "ThinProvisioned"},
    "ISCSIVolumeSource": {"iscsiInterface": "default"},
}
"""The default values of optional fields, by type (see `core.pod_schema`) and field."""


@dataclass(frozen=True, kw_only=True)
class ResourceSchema:
    """The schema of a custom resource, with types in the format of `core.pod_schema`."""

    parts: str
    """The types of the custom resource, in addition to those of `core.pod_schema`."""
    defaults: Mapping[str, Mapping[str, str | bool | int]]
    """The default values of optional fields of the types in `parts`, by type and field."""
    newer: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The fields, by type, that `core.pod_schema` contains but the custom resource definition does not."""

    @cached_property
    def _fields(self) -> Mapping[str, Mapping[str, str]]:
        return {
            name: {
                each: kind.rstrip("!*")
                for each, kind in fields.items()
                if each not in self.newer.get(name, ())
            }
            for name, fields in parse_types(PARTS + self.parts).items()
        }

    def prune_object(self, manifest: Manifest) -> dict[str, Any]:
        """Return an object with defaults and no unknown fields in its spec. Values must have valid types."""
        return {**manifest, "spec": self.prune(manifest["spec"], f"{manifest['kind']}Spec")}

    def prune(self, value: Any, kind: str) -> Any:
        """Return `value`, which has the type `kind`, with defaults and without unknown fields and nulls."""
        if kind.startswith("["):
            return [self.prune(item, kind[1:-1]) for item in value]
        kinds = self._get_kinds(value, kind)
        if kinds is None:
            return value
        known = {
            key: self.prune(item, kinds[key])
            for key, item in value.items()
            if key in kinds and item is not None
        }
        return {**_POD_DEFAULTS.get(kind, {}), **self.defaults.get(kind, {}), **known}

    def _get_kinds(self, value: Any, kind: str) -> Mapping[str, str] | None:
        """Return the type of each field of a value of the type `kind`; None if it has no known fields."""
        return dict.fromkeys(value, kind[1:-1]) if kind.startswith("{") else self._fields.get(kind)
