"""The table of breaks: one row for each kind of facts that the doctor reads from a cluster.

`remedy_cases.py` of the unit tests has a case for each check. The last row deletes the CRD and all jobs.
"""

from collections.abc import Mapping
from typing import Any, Final

from rig.api import Manifest

from backend_plugin.server_address import Server
from broken_clusters import cluster_changes, external_services
from broken_clusters.break_case import Break
from broken_clusters.healthy import FLYTE, OPERATOR, changed
from broken_clusters.manifests import (
    build_manifest,
    deployment,
    endpoints,
    gang_template,
    kind,
    limit_range,
    policy,
    quota,
)

_CONNECTOR: Final = ("plugins", "connector-service", "defaultConnector")
_ROUTES: Final = ("tasks", "task-plugins")
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


def gang(**fields: str) -> Mapping[str, Any]:
    """Return plugin settings with these gang options."""
    return {"kfpytorch": {"gang": {key.replace("_", "-"): value for key, value in fields.items()}}}


def scheduler(*args: str) -> Manifest:
    there = deployment("some-scheduler", "kube-system", "example.org/some-scheduler:v1", [*args])
    return {**there, "status": _READY}


def local_queue(namespace: str) -> Manifest:
    spec = {"clusterQueue": "all"}
    return build_manifest("kueue.x-k8s.io/v1beta1", "LocalQueue", "team", namespace, spec=spec)


def cluster_queue(**quotas: str) -> Manifest:
    amounts = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
    group = {"coveredResources": [*quotas], "flavors": [{"name": "any", "resources": amounts}]}
    return build_manifest("kueue.x-k8s.io/v1beta1", "ClusterQueue", "all", spec={"resourceGroups": [group]})


_KUEUES: Final = gang(scheduler="kueue", queue="team")


def workers(count: int, cpu: str) -> Mapping[str, Any]:
    """Return a task with `count` workers, each with this request and limit."""
    amounts = [{"name": "CPU", "value": cpu}]
    container = {"image": "image:1", "args": ["true"], "resources": {"requests": amounts, "limits": amounts}}
    return {"custom": {"workerReplicas": {"replicas": count}}, "template": {"container": container}}


def connector() -> Manifest:
    """Return the Deployment of a connector whose service account has no rights."""
    there = deployment("flyte-kfpytorch", FLYTE, "example.org/kfpytorch-backend:1.0.0")
    labels = {"app.kubernetes.io/name": "kfpytorch-backend", "app.kubernetes.io/version": "1.0.0"}
    return {**there, "metadata": {**there["metadata"], "labels": labels}, "status": _READY}


BREAKS: Final = (
    # ---- the API server
    Break(finds="api-unreachable", remedy="kubectl version", around=cluster_changes.nobody),
    Break(finds="api-version", remedy="1.27 or newer", around=cluster_changes.version("v1.24.17")),
    Break(finds="clock-skew", remedy="timedatectl set-ntp true", around=cluster_changes.ahead),
    Break(
        finds="namespace-missing", remedy="kubectl create namespace nowhere", request={"namespace": "nowhere"}
    ),
    # ---- the operator
    Break(
        finds="operator-crd-outdated",
        remedy="kubectl apply --server-side -k",
        around=cluster_changes.old_kind,
    ),
    Break(
        finds="operator-down",
        remedy="kubectl logs deployment/training-operator -n kubeflow",
        there=lambda _: [{**OPERATOR, "status": {"availableReplicas": None, "readyReplicas": None}}],
    ),
    Break(finds="operator-not-reconciling", remedy="kubectl rollout restart", around=cluster_changes.asleep),
    Break(
        finds="webhook-unreachable",
        remedy="kubectl get validatingwebhookconfigurations",
        there=lambda namespace: [cluster_changes.away(namespace)],
    ),
    Break(finds="webhook-missing", remedy="?ref=v1.9.3", around=cluster_changes.without_hook),
    # ---- gangs
    Break(finds="gang-unused", remedy="scheduler: coscheduling", there=lambda _: _COSCHEDULING),
    Break(
        finds="gang-rejected",
        remedy="write auto",
        there=lambda namespace: [*_KUEUE, local_queue(namespace), cluster_queue(cpu="8", memory="100Gi")],
        platform=_KUEUES,
    ),
    # ---- queues
    Break(
        finds="queue-missing",
        remedy="kind: Queue, metadata: {name: research}",
        there=lambda _: [*_VOLCANO, scheduler("--scheduler-name=volcano")],
        platform=gang(scheduler="volcano", pod_groups_by="backend", queue="research"),
    ),
    Break(
        finds="queue-uncovered",
        remedy="coveredResources: [memory]",
        there=lambda namespace: [
            *_KUEUE,
            *cluster_changes.kueues_webhook(namespace),
            local_queue(namespace),
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
            local_queue(namespace),
            cluster_queue(cpu="8", memory="100Gi"),
        ],
        platform=_KUEUES,
        request={
            "custom": {
                "workerReplicas": {"replicas": 1},
                "kfpytorch": {"gang": {"priorityClassName": "urgent"}},
            }
        },
    ),
    Break(
        finds="template-placeholder",
        remedy='{"template": {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": null}}}}',
        there=lambda namespace: [
            gang_template(
                namespace, "gang-scheduling-template", labels={"scheduling.x-k8s.io/pod-group": "training"}
            )
        ],
    ),
    # ---- the task
    Break(
        finds="task-rejected",
        remedy="write",
        request={
            "custom": {
                "workerReplicas": {"replicas": 2},
                "elasticConfig": {"minReplicas": 3, "maxReplicas": 2},
            }
        },
    ),
    Break(
        finds="job-rejected",
        remedy="the command render prints the job",
        there=lambda namespace: cluster_changes.refusing(namespace, "kubeflow.org", "pytorchjobs"),
    ),
    Break(
        finds="pod-rejected",
        remedy="render prints the pod's template",
        there=lambda namespace: cluster_changes.refusing(namespace, "", "pods"),
    ),
    Break(
        finds="job-changed",
        remedy="kubectl get mutatingwebhookconfigurations",
        there=lambda namespace: cluster_changes.altering(
            namespace, "kubeflow.org", "pytorchjobs", "/spec/pytorchReplicaSpecs/Worker/replicas", "3"
        ),
    ),
    Break(
        finds="pod-changed",
        remedy="set the same in the settings",
        there=lambda namespace: cluster_changes.altering(
            namespace, "", "pods", "/spec/schedulerName", "'yunikorn'"
        ),
    ),
    # ---- quotas
    Break(
        finds="quota-too-small",
        remedy='{"spec":{"hard":{"requests.cpu":"10"}}}',
        there=lambda namespace: [quota(namespace, **{"requests.cpu": "4"})],
        request=workers(4, cpu="2"),
    ),
    Break(
        finds="limit-range",
        remedy="kubectl edit limitrange most",
        there=lambda namespace: [limit_range(namespace, max={"cpu": "1500m"})],
        request=workers(1, cpu="2"),
    ),
    # ---- nodes
    Break(
        finds="no-ready-node",
        remedy="kubectl uncordon",
        around=cluster_changes.nodes({"unschedulable": True}),
    ),
    # ---- the network
    Break(
        finds="network-ingress",
        remedy="policyTypes: [Ingress], ingress: [{from: [{podSelector:",
        there=lambda namespace: [policy("deny", namespace, policyTypes=["Ingress"])],
    ),
    Break(
        finds="dns-not-ready",
        remedy="kubectl get pods -n kube-system -l k8s-app=kube-dns",
        there=lambda _: [endpoints("kube-dns", "kube-system", ready=False, **{"k8s-app": "kube-dns"})],
    ),
    # ---- service account, pod security and images
    Break(
        finds="pod-security",
        remedy="default-pod-security-context",
        request={"custom": {"workerReplicas": {"replicas": 2}}},
        around=cluster_changes.secured,
    ),
    Break(
        finds="service-account-missing",
        remedy="kubectl create serviceaccount default",
        around=cluster_changes.without_account,
    ),
    # ---- objects that pods reference
    Break(
        finds="config-map-missing",
        remedy="kubectl create configmap proxies",
        pod={"volumes": [{"name": "proxies", "configMap": {"name": "proxies"}}]},
    ),
    Break(
        finds="secret-missing",
        remedy="kubectl create secret generic keys",
        pod={"volumes": [{"name": "keys", "secret": {"secretName": "keys"}}]},
    ),
    Break(
        finds="volume-claim-missing",
        remedy="kind: PersistentVolumeClaim, metadata: {name: data",
        pod={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
    ),
    # ---- outside the namespace
    Break(
        finds="output-store",
        how="s3-that-refuses",
        remedy="get, put, list and delete",
        around=external_services.s3(AWS_SECRET_ACCESS_KEY="anothers"),
    ),
    Break(
        finds="output-store",
        how="s3-without-the-bucket",
        remedy="aws s3 mb s3://nobodys",
        around=external_services.s3("nobodys"),
    ),
    Break(
        finds="flyte-route",
        remedy="default-for-task-types: {pytorch: connector-service}",
        there=lambda _: [changed(*_ROUTES, "default-for-task-types", to=[{"pytorch": "pytorch"}])],
    ),
    Break(
        finds="connector-service",
        remedy="kubectl get services -n flyte",
        there=lambda _: [changed(*_CONNECTOR, "endpoint", to="dns:///kfpytorch.flyte.svc:8000")],
    ),
    Break(
        finds="connector-down",
        remedy="kubectl describe service kfpytorch-backend",
        there=lambda _: [endpoints("kfpytorch-backend", FLYTE, ready=False)],
    ),
    Break(
        finds="connector-unreachable",
        remedy="kubectl get services,pods -A -l app.kubernetes.io/name=kfpytorch-backend",
        request={"connector": Server(address="127.0.0.1:1")},
    ),
    Break(
        finds="connector-rbac",
        remedy="{apiGroups: [kubeflow.org], resources: [pytorchjobs], verbs: [create, get, list, watch, ",
        there=lambda _: [connector()],
    ),
    # ---- the last one, because deleting the CRD deletes all jobs
    Break(finds="operator-crd-missing", remedy="?ref=v1.9.3", around=cluster_changes.without_kind),
)
