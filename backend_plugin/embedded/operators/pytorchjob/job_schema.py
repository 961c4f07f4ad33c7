"""The types of a PyTorchJob in the custom resource definition of training-operator 1.9.3.

The types of pods are in `core.pod_schema`. The definition is older than those
types and does not contain their newer fields.
"""

from collections.abc import Mapping
from typing import Final

from backend_plugin.embedded.admission.schema import ResourceSchema

# The format is that of `core.pod_schema`. Markers for zero values have no effect here.
JOB_PARTS: Final = """\
PyTorchJob spec:PyTorchJobSpec
PyTorchJobSpec elasticPolicy:ElasticPolicy nprocPerNode:string pytorchReplicaSpecs:{ReplicaSpec}
  runPolicy:RunPolicy
ReplicaSpec replicas:int32 restartPolicy:string template:PodTemplateSpec
RunPolicy activeDeadlineSeconds:int64 backoffLimit:int32 cleanPodPolicy:string managedBy:string
  schedulingPolicy:SchedulingPolicy suspend:bool ttlSecondsAfterFinished:int32
SchedulingPolicy minAvailable:int32 minResources:{quantity} priorityClass:string queue:string
  scheduleTimeoutSeconds:int32
ElasticPolicy maxReplicas:int32 maxRestarts:int32 metrics:[MetricSpec] minReplicas:int32 nProcPerNode:int32
  rdzvBackend:string rdzvConf:[RDZVConf] rdzvHost:string rdzvId:string rdzvPort:int32 standalone:bool
RDZVConf key:string value:string
MetricSpec containerResource:ContainerResourceMetricSource external:ExternalMetricSource
  object:ObjectMetricSource pods:PodsMetricSource resource:ResourceMetricSource type:string
ContainerResourceMetricSource container:string name:string target:MetricTarget
ExternalMetricSource metric:MetricIdentifier target:MetricTarget
ObjectMetricSource describedObject:CrossVersionObjectReference metric:MetricIdentifier target:MetricTarget
PodsMetricSource metric:MetricIdentifier target:MetricTarget
ResourceMetricSource name:string target:MetricTarget
MetricIdentifier name:string selector:LabelSelector
MetricTarget averageUtilization:int32 averageValue:quantity type:string value:quantity
CrossVersionObjectReference apiVersion:string kind:string name:string
"""

REQUIRED: Final[Mapping[str, str]] = {
    "PyTorchJobSpec": "pytorchReplicaSpecs",
    "MetricSpec": "type",
    "ContainerResourceMetricSource": "container name target",
    "ExternalMetricSource": "metric target",
    "ObjectMetricSource": "describedObject metric target",
    "PodsMetricSource": "metric target",
    "ResourceMetricSource": "name target",
    "MetricIdentifier": "name",
    "MetricTarget": "type",
    "CrossVersionObjectReference": "kind name",
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
"""The required fields of each type."""

_OF_CONTAINERS: Final = {
    "volumeDevices": "devicePath",
    "ports": "containerPort protocol",
    "env": "name",
    "volumeMounts": "mountPath",
}
KEYS: Final[Mapping[str, Mapping[str, str]]] = {
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
"""The key fields of list entries. The entries of a list must have different keys."""

DEFAULTS: Final[Mapping[str, Mapping[str, str | bool]]] = {
    "RunPolicy": {"suspend": False},
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

NEWER: Final[Mapping[str, frozenset[str]]] = {
    "Container": frozenset({"restartPolicyRules"}),
    "EphemeralContainer": frozenset({"restartPolicyRules"}),
    "EnvVarSource": frozenset({"fileKeyRef"}),
    "Lifecycle": frozenset({"stopSignal"}),
    "ObjectMeta": frozenset({"generateName"}),
    "PodSecurityContext": frozenset({"seLinuxChangePolicy"}),
    "PodSpec": frozenset({"hostnameOverride", "resources"}),
    "VolumeProjection": frozenset({"podCertificate"}),
}
"""Fields in `core.pod_schema` that the definition does not contain. They are dropped without an error."""

SCHEMA: Final = ResourceSchema(parts=JOB_PARTS, required=REQUIRED, keys=KEYS, defaults=DEFAULTS, newer=NEWER)
