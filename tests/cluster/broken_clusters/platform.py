"""Breaks of the platform: its API server, its operator, its gang scheduler and queues."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rig.api import Manifest

from broken_clusters import cluster_changes
from broken_clusters.break_case import Break
from broken_clusters.healthy import OPERATOR
from broken_clusters.manifests import build_manifest, deployment, kind

_NO_POD: Final = {"availableReplicas": None, "readyReplicas": None}
_READY: Final = {"replicas": 1, "availableReplicas": 1, "readyReplicas": 1}
_COSCHEDULING: Final = [kind("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", "Namespaced")]
_KUEUE: Final = [
    kind("kueue.x-k8s.io", "v1beta1", "LocalQueue", "localqueues", "Namespaced"),
    kind("kueue.x-k8s.io", "v1beta1", "ClusterQueue", "clusterqueues"),
    kind("kueue.x-k8s.io", "v1beta1", "WorkloadPriorityClass", "workloadpriorityclasses"),
]
_VOLCANO: Final = [
    kind("scheduling.volcano.sh", "v1beta1", "Queue", "queues"),
    kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", "Namespaced"),
]


def gang(**said: str) -> Mapping[str, Any]:
    """Return plugin settings with these gang options."""
    return {"kfpytorch": {"gang": {key.replace("_", "-"): value for key, value in said.items()}}}


def operator(*args: str, image: str = "", status: Mapping[str, Any] = _READY, name: str = "") -> Manifest:
    """Return the operator's Deployment with other arguments, image, status or name."""
    there = deployment(
        name or "training-operator", "kubeflow", image or "example.org/training-operator:v1.9.3", args
    )
    return {**there, "status": {**_READY, **status}}


def scheduler(*args: str, status: Mapping[str, Any] = _READY) -> Manifest:
    there = deployment("some-scheduler", "kube-system", "example.org/some-scheduler:v1", [*args])
    return {**there, "status": {**_READY, **status}}


def local_queue(namespace: str, **said: Any) -> Sequence[Manifest]:
    spec = {"clusterQueue": "all"}
    return [build_manifest("kueue.x-k8s.io/v1beta1", "LocalQueue", "team", namespace, spec={**spec, **said})]


def cluster_queue(**quotas: str) -> Manifest:
    amounts = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
    group = {"coveredResources": [*quotas], "flavors": [{"name": "any", "resources": amounts}]}
    return build_manifest("kueue.x-k8s.io/v1beta1", "ClusterQueue", "all", spec={"resourceGroups": [group]})


_KUEUES: Final = gang(scheduler="kueue", queue="team")

BREAKS: Final = (
    # ---- the API server
    Break(finds="api-unreachable", remedy="kubectl version", around=cluster_changes.nobody),
    Break(finds="api-version", remedy="1.27 or newer", around=cluster_changes.version("v1.24.17")),
    Break(finds="clock-skew", remedy="timedatectl set-ntp true", around=cluster_changes.ahead),
    Break(
        finds="namespace-missing",
        remedy="kubectl create namespace nowhere",
        asks={"namespace": "nowhere"},
    ),
    Break(
        finds="namespace-terminating", remedy="kubectl get namespace ending", around=cluster_changes.ending
    ),
    # ---- the operator
    Break(
        finds="operator-crd-outdated",
        remedy="kubectl apply --server-side -k",
        around=cluster_changes.old_kind,
    ),
    Break(finds="operator-missing", remedy="?ref=v1.9.3", around=cluster_changes.without_object(OPERATOR)),
    Break(
        finds="operator-missing",
        how="nor-its-webhook",
        remedy="?ref=v1.9.3",
        around=cluster_changes.without_operator_and_hook,
    ),
    Break(
        finds="operator-down",
        remedy="kubectl logs deployment/training-operator -n kubeflow",
        there=lambda _: [operator(status=_NO_POD)],
    ),
    Break(
        finds="operator-duplicate",
        remedy="kubectl delete deployment/",
        there=lambda _: [operator(name="trainer", image="example.org/training-operator:v1.8.1")],
    ),
    Break(
        finds="operator-outdated",
        remedy="?ref=v1.9.3",
        there=lambda _: [operator(image="example.org/training-operator:v1.5.0")],
    ),
    Break(
        finds="operator-wrong-scope",
        remedy="remove --namespace=ml",
        there=lambda _: [operator("--namespace=ml")],
    ),
    Break(
        finds="operator-scheme",
        remedy="--enable-scheme=pytorchjob",
        there=lambda _: [operator("--enable-scheme=tfjob")],
    ),
    Break(finds="operator-not-reconciling", remedy="kubectl rollout restart", around=cluster_changes.asleep),
    Break(
        finds="webhook-unreachable",
        remedy="kubectl get validatingwebhookconfigurations",
        there=lambda namespace: [cluster_changes.away(namespace)],
    ),
    Break(finds="webhook-missing", remedy="?ref=v1.9.3", around=cluster_changes.without_hook),
    # ---- gangs
    Break(
        finds="gang-crd-missing",
        remedy="scheduler: none",
        also=("scheduler-missing",),
        platform=gang(scheduler="coscheduling", pod_groups_by="backend"),
    ),
    Break(finds="gang-unused", remedy="scheduler: coscheduling", there=lambda _: _COSCHEDULING),
    Break(
        finds="scheduler-missing",
        remedy="a profile schedulerName: scheduler-plugins-scheduler",
        there=lambda _: _COSCHEDULING,
        platform=gang(scheduler="coscheduling", pod_groups_by="backend"),
    ),
    Break(
        finds="scheduler-missing",
        how="misspelt",
        remedy="scheduler-name: ",
        there=lambda _: [scheduler("--scheduler-name=volcano")],
        platform={"scheduler-name": "volcanoe"},
    ),
    Break(
        finds="scheduler-down",
        remedy="kubectl describe deployment",
        there=lambda _: [scheduler("--scheduler-name=mine", status=_NO_POD)],
        platform={"scheduler-name": "mine"},
    ),
    Break(
        finds="pod-groups-not-created",
        remedy="--gang-scheduler-name=volcano",
        there=lambda _: [*_VOLCANO, scheduler("--scheduler-name=volcano")],
        platform=gang(scheduler="volcano", pod_groups_by="operator"),
    ),
    Break(
        finds="pod-groups-not-created",
        how="another",
        remedy="--gang-scheduler-name=volcano",
        there=lambda _: [
            *_VOLCANO,
            scheduler("--scheduler-name=volcano"),
            operator("--gang-scheduler-name=scheduler-plugins-scheduler"),
        ],
        platform=gang(scheduler="volcano", pod_groups_by="operator"),
    ),
    Break(
        finds="pod-groups-duplicate",
        remedy="remove --gang-scheduler-name",
        there=lambda _: [operator("--gang-scheduler-name=volcano")],
    ),
    Break(
        finds="gang-rejected",
        remedy="write auto",
        there=lambda namespace: [*_KUEUE, *local_queue(namespace), cluster_queue(cpu="8", memory="100Gi")],
        platform=_KUEUES,
    ),
    # ---- queues
    Break(
        finds="queue-missing",
        remedy="kind: LocalQueue, metadata: {name: team",
        there=lambda namespace: [*_KUEUE, *cluster_changes.kueues_webhook(namespace)],
        platform=_KUEUES,
    ),
    Break(
        finds="queue-missing",
        how="volcano",
        remedy="kind: Queue, metadata: {name: research}",
        there=lambda _: [*_VOLCANO, scheduler("--scheduler-name=volcano")],
        platform=gang(scheduler="volcano", pod_groups_by="backend", queue="research"),
    ),
    Break(
        finds="queue-closed",
        remedy="kubectl describe localqueue.kueue.x-k8s.io team -n doctor-",
        there=lambda namespace: [
            *_KUEUE,
            *cluster_changes.kueues_webhook(namespace),
            *local_queue(namespace, stopPolicy="Hold"),
            cluster_queue(cpu="8", memory="100Gi"),
        ],
        platform=_KUEUES,
    ),
    Break(
        finds="queue-too-small",
        remedy="cpu: 2",
        there=lambda namespace: [
            *_KUEUE,
            *cluster_changes.kueues_webhook(namespace),
            *local_queue(namespace),
            cluster_queue(cpu="1", memory="100Gi"),
        ],
        platform=_KUEUES,
    ),
    Break(
        finds="queue-uncovered",
        remedy="coveredResources: [memory]",
        there=lambda namespace: [
            *_KUEUE,
            *cluster_changes.kueues_webhook(namespace),
            *local_queue(namespace),
            cluster_queue(cpu="8"),
        ],
        platform=_KUEUES,
    ),
    Break(
        finds="priority-class-missing",
        remedy="kubectl create priorityclass urgent",
        pod={"priorityClassName": "urgent"},
    ),
    Break(
        finds="workload-priority-class-missing",
        remedy="kind: WorkloadPriorityClass, metadata: {name: urgent}",
        there=lambda namespace: [
            *_KUEUE,
            *cluster_changes.kueues_webhook(namespace),
            *local_queue(namespace),
            cluster_queue(cpu="8", memory="100Gi"),
        ],
        platform=_KUEUES,
        asks={
            "custom": {
                "workerReplicas": {"replicas": 1},
                "kfpytorch": {"gang": {"priorityClassName": "urgent"}},
            }
        },
    ),
)
