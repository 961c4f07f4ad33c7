"""Required fields, default values and list keys (fields that identify an entry) of pod types.

`ResourceSchema` describes the format.
"""

from collections.abc import Mapping
from typing import Final

POD_REQUIRED: Final[Mapping[str, str]] = {
    "PodSpec": "containers",
    "EphemeralContainer": "name",
    "ResourceClaim": "name",
    "GRPCAction": "port",
    "TCPSocketAction": "port",
    "HTTPGetAction": "port",
    "HTTPHeader": "name value",
    "SleepAction": "seconds",
    "SeccompProfile": "type",
    "AppArmorProfile": "type",
    "ContainerResizePolicy": "resourceName restartPolicy",
    "VolumeDevice": "devicePath name",
    "ContainerPort": "containerPort",
    "EnvVar": "name",
    "SecretKeySelector": "key",
    "ConfigMapKeySelector": "key",
    "ResourceFieldSelector": "resource",
    "ObjectFieldSelector": "fieldPath",
    "VolumeMount": "mountPath name",
    "Volume": "name",
    "NFSVolumeSource": "path server",
    "DownwardAPIVolumeFile": "path",
    "AzureFileVolumeSource": "secretName shareName",
    "AzureDiskVolumeSource": "diskName diskURI",
    "KeyToPath": "key path",
    "PersistentVolumeClaimTemplate": "spec",
    "TypedLocalObjectReference": "kind name",
    "TypedObjectReference": "kind name",
    "LabelSelectorRequirement": "key operator",
    "GCEPersistentDiskVolumeSource": "pdName",
    "CSIVolumeSource": "driver",
    "GlusterfsVolumeSource": "endpoints path",
    "QuobyteVolumeSource": "registry volume",
    "PersistentVolumeClaimVolumeSource": "claimName",
    "AWSElasticBlockStoreVolumeSource": "volumeID",
    "PortworxVolumeSource": "volumeID",
    "RBDVolumeSource": "image monitors",
    "CephFSVolumeSource": "monitors",
    "ScaleIOVolumeSource": "gateway secretRef system",
    "GitRepoVolumeSource": "repository",
    "PhotonPersistentDiskVolumeSource": "pdID",
    "ClusterTrustBundleProjection": "path",
    "ServiceAccountTokenProjection": "path",
    "FlexVolumeSource": "driver",
    "CinderVolumeSource": "volumeID",
    "HostPathVolumeSource": "path",
    "ISCSIVolumeSource": "iqn lun targetPortal",
    "VsphereVirtualDiskVolumeSource": "volumePath",
    "PodSchedulingGate": "name",
    "WeightedPodAffinityTerm": "podAffinityTerm weight",
    "PodAffinityTerm": "topologyKey",
    "PreferredSchedulingTerm": "preference weight",
    "NodeSelectorRequirement": "key operator",
    "NodeSelector": "nodeSelectorTerms",
    "TopologySpreadConstraint": "maxSkew topologyKey whenUnsatisfiable",
    "Sysctl": "name value",
    "Container": "name",
    "PodOS": "name",
    "PodReadinessGate": "conditionType",
    "HostAlias": "ip",
    "PodResourceClaim": "name",
}
"""The required fields of each type, separated by spaces."""

_OF_CONTAINERS: Final = {
    "volumeDevices": "devicePath",
    "ports": "containerPort protocol",
    "env": "name",
    "volumeMounts": "mountPath",
}
POD_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "Container": _OF_CONTAINERS,
    "EphemeralContainer": _OF_CONTAINERS,
    "ResourceRequirements": {"claims": "name"},
    "PodSpec": {
        "containers": "name",
        "ephemeralContainers": "name",
        "hostAliases": "ip",
        "imagePullSecrets": "name",
        "initContainers": "name",
        "resourceClaims": "name",
        "schedulingGates": "name",
        "topologySpreadConstraints": "topologyKey whenUnsatisfiable",
        "volumes": "name",
    },
}
"""The key fields of each list, separated by spaces, by type and field. No two entries have equal keys."""

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
"""The default values of optional fields."""
