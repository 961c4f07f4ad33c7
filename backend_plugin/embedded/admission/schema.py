"""Applies the schema of a custom resource as the API server does: pruning and defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from backend_plugin.core.pod_schema import PARTS
from backend_plugin.core.schema_check import parse_types
from backend_plugin.core.values import Manifest

POD_DEFAULTS: Final[Mapping[str, Mapping[str, str | bool]]] = {
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
"""The default values of optional fields in the types of `core.pod_schema`."""


@dataclass(frozen=True, kw_only=True)
class ResourceSchema:
    """The schema of a custom resource, with types in the format of `core.pod_schema`."""

    parts: str
    """The types of the custom resource, in addition to those of `core.pod_schema`."""
    defaults: Mapping[str, Mapping[str, str | bool | int]]
    """The default values of optional fields, by type and field."""
    newer: Mapping[str, frozenset[str]]
    """Fields in `core.pod_schema` that the custom resource definition does not contain."""

    @cached_property
    def _fields(self) -> Mapping[str, Mapping[str, str]]:
        return {
            name: {
                field: kind.rstrip("!*")
                for field, kind in fields.items()
                if field not in self.newer.get(name, ())
            }
            for name, fields in parse_types(PARTS + self.parts).items()
        }

    def prune_object(self, manifest: Manifest) -> dict[str, Any]:
        """Return an object with its spec pruned. The types of all fields must be valid."""
        return {**manifest, "spec": self.prune(manifest["spec"], f"{manifest['kind']}Spec")}

    def prune(self, value: Any, kind: str) -> Any:
        """Return a value of the type `kind` with defaults, and without unknown fields and nulls."""
        if kind.startswith("["):
            return [self.prune(item, kind[1:-1]) for item in value]
        kinds = dict.fromkeys(value, kind[1:-1]) if kind.startswith("{") else self._fields.get(kind)
        if kinds is None:
            return value
        known = {
            key: self.prune(item, kinds[key])
            for key, item in value.items()
            if key in kinds and item is not None
        }
        return {**self.defaults.get(kind, {}), **known}
