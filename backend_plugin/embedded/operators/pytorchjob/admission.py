"""Prunes and completes new PyTorchJobs as the API server does, and limits their number of replicas."""

from collections.abc import Mapping
from typing import Final

from backend_plugin.core.dialects.pytorchjob.resource import REPLICA_SPECS
from backend_plugin.core.pod_rules.field_errors import build_forbidden_error
from backend_plugin.core.reading import get_int, get_mapping
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission import ResourceSchema, build_unprocessable_resource

# The types of training-operator 1.9.3, in the format of `core.pod_schema`. An `object` is stored unchanged.
JOB_PARTS: Final = """\
PyTorchJob spec:PyTorchJobSpec
PyTorchJobSpec elasticPolicy:ElasticPolicy nprocPerNode:string pytorchReplicaSpecs:{ReplicaSpec}
  runPolicy:RunPolicy
ReplicaSpec replicas:int32 restartPolicy:string template:PodTemplateSpec
RunPolicy activeDeadlineSeconds:int64 backoffLimit:int32 cleanPodPolicy:string managedBy:string
  schedulingPolicy:SchedulingPolicy suspend:bool ttlSecondsAfterFinished:int32
SchedulingPolicy minAvailable:int32 minResources:{quantity} priorityClass:string queue:string
  scheduleTimeoutSeconds:int32
ElasticPolicy maxReplicas:int32 maxRestarts:int32 metrics:[object] minReplicas:int32 nProcPerNode:int32
  rdzvBackend:string rdzvConf:[RDZVConf] rdzvHost:string rdzvId:string rdzvPort:int32 standalone:bool
RDZVConf key:string value:string
"""

_NEWER: Final[Mapping[str, frozenset[str]]] = {
    "Container": frozenset({"restartPolicyRules"}),
    "EphemeralContainer": frozenset({"restartPolicyRules"}),
    "EnvVarSource": frozenset({"fileKeyRef"}),
    "Lifecycle": frozenset({"stopSignal"}),
    "ObjectMeta": frozenset({"generateName"}),
    "PodSecurityContext": frozenset({"seLinuxChangePolicy"}),
    "PodSpec": frozenset({"hostnameOverride", "resources"}),
    "VolumeProjection": frozenset({"podCertificate"}),
}
"""The fields, by type, of `core.pod_schema` that the CRD of PyTorchJob does not contain. The API server drops
these fields without an error."""

SCHEMA: Final = ResourceSchema(parts=JOB_PARTS, defaults={"RunPolicy": {"suspend": False}}, newer=_NEWER)

# The limit for one job. Creating thousands of pods in one pass would block the event loop for too long.
_MOST_REPLICAS: Final = 1_000


def admit_job(manifest: Manifest, _: Manifest | None = None) -> Manifest:
    """Return a new PyTorchJob with defaults and no unknown fields. The store adds uid, version and times.

    Raises:
        RequestRejected: If the job has too many replicas for one machine.
    """
    specs = get_mapping(manifest, "spec", REPLICA_SPECS)
    replicas = sum(get_int(specs, role, "replicas") or 0 for role in specs)
    if replicas > _MOST_REPLICAS:
        detail = f"must have at most {_MOST_REPLICAS} replicas in total, has {replicas}"
        raise build_unprocessable_resource(manifest, [build_forbidden_error(f"spec.{REPLICA_SPECS}", detail)])
    return SCHEMA.prune_object(manifest)
