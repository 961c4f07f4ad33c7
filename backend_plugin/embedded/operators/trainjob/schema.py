"""The supported types of a TrainJob and a TrainingRuntime in the resource definitions of Trainer 2.3.0."""

from typing import Final

from backend_plugin.embedded.admission.schema import POD_DEFAULTS, ResourceSchema

# The format is that of `core.pod_schema`. Markers for zero values have no effect here.
PARTS: Final = """\
TrainJobSpec managedBy:string runtimeRef:RuntimeRef suspend:bool trainer:Trainer
RuntimeRef apiGroup:string kind:string name:string
Trainer numNodes:int32 numProcPerNode:int32 resourcesPerNode:ResourceRequirements
TrainingRuntimeSpec mlPolicy:MLPolicy template:JobSetTemplate
MLPolicy numNodes:int32
JobSetTemplate metadata:TemplateMeta spec:JobSetSpec
TemplateMeta annotations:{string} labels:{string}
JobSetSpec failurePolicy:FailurePolicy network:Network replicatedJobs:[ReplicatedJob]
FailurePolicy maxRestarts:int32 restartStrategy:string rules:[FailurePolicyRule]
FailurePolicyRule action:string name:string onJobFailureMessagePatterns:[string] onJobFailureReasons:[string]
Network enableDNSHostnames:bool publishNotReadyAddresses:bool
ReplicatedJob groupName:string name:string replicas:int32 template:JobTemplate
JobTemplate metadata:TemplateMeta spec:JobSpec
JobSpec backoffLimit:int32 podFailurePolicy:PodFailurePolicy successPolicy:Success template:PodTemplateSpec
PodFailurePolicy rules:[PodFailurePolicyRule]
PodFailurePolicyRule action:string onExitCodes:ExitCodes onPodConditions:[PodConditionPattern]
ExitCodes containerName:string operator:string values:[int32]
PodConditionPattern status:string type:string
Success rules:[SuccessRule]
SuccessRule succeededCount:int32 succeededIndexes:string
"""

SCHEMA: Final = ResourceSchema(
    parts=PARTS,
    defaults={
        **POD_DEFAULTS,
        "TrainJobSpec": {"suspend": False, "managedBy": "trainer.kubeflow.org/trainjob-controller"},
        "RuntimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime"},
        "ReplicatedJob": {"groupName": "default", "replicas": 1},
        "PodConditionPattern": {"status": "True"},
    },
    newer={},
)
