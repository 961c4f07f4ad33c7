"""The types of a PyTorchJob in the custom resource definition of training-operator 1.9.3."""

from collections.abc import Mapping
from typing import Final

from backend_plugin.embedded.admission.schema import POD_DEFAULTS, ResourceSchema

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
"""Fields of `core.pod_schema` that the CRD does not contain. The API server drops them without an error."""

SCHEMA: Final = ResourceSchema(
    parts=JOB_PARTS, defaults={**POD_DEFAULTS, "RunPolicy": {"suspend": False}}, newer=NEWER
)
