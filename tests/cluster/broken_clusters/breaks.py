"""The table of breaks: each row has one or more independent problems of the same cluster.

Together they contain each kind of facts that the doctor reads from a cluster. `remedy_cases.py` of the unit
tests has a case for each check. The last row deletes the CRD and all jobs.
"""

from contextlib import nullcontext

from rig import fake_nodes, operator, policies
from rig.api import build_manifest

from broken_clusters import cluster_changes, healthy
from broken_clusters.break_case import Break

_ROUTES = ("tasks", "task-plugins", "default-for-task-types")
_KUEUE = [
    healthy.kind("kueue.x-k8s.io", "v1beta1", "LocalQueue", "localqueues", "Namespaced"),
    healthy.kind("kueue.x-k8s.io", "v1beta1", "ClusterQueue", "clusterqueues"),
    healthy.kind("kueue.x-k8s.io", "v1beta1", "WorkloadPriorityClass", "workloadpriorityclasses"),
]
_HOOK = f"/apis/{policies.VERSION}/validatingwebhookconfigurations/{operator.HOOK}"
_ACCOUNT = "/api/v1/namespaces/{}/serviceaccounts/default"
_RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
_MISSING = {
    "priorityClassName": "urgent",
    "volumes": [
        {"name": "proxies", "configMap": {"name": "proxies"}},
        {"name": "keys", "secret": {"secretName": "keys"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ],
}


def local_queue(namespace):
    spec = {"clusterQueue": "all"}
    return build_manifest("kueue.x-k8s.io/v1beta1", "LocalQueue", "team", namespace, spec=spec)


def cluster_queue():
    """Return a queue that covers only CPUs."""
    amounts = [{"name": "cpu", "nominalQuota": "8"}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": amounts}]}
    return build_manifest("kueue.x-k8s.io/v1beta1", "ClusterQueue", "all", spec={"resourceGroups": [group]})


def workers(count, cpu):
    amounts = [{"name": "CPU", "value": cpu}]
    container = {"image": "image:1", "args": ["true"], "resources": {"requests": amounts, "limits": amounts}}
    return {"custom": {"workerReplicas": {"replicas": count}}, "template": {"container": container}}


def connector():
    """Return the Deployment of a connector whose service account has no rights."""
    there = healthy.deployment("flyte-kfpytorch", healthy.FLYTE, "example.org/kfpytorch-backend:1.0.0")
    labels = {"app.kubernetes.io/name": "kfpytorch-backend", "app.kubernetes.io/version": "1.0.0"}
    status = {"replicas": 1, "availableReplicas": 1, "readyReplicas": 1}
    return {**there, "metadata": {**there["metadata"], "labels": labels}, "status": status}


BREAKS = (
    Break(
        finds={"api-unreachable": "kubectl version"},
        around=lambda on: nullcontext({"kubeconfig": on.plane.kubeconfig(server="https://127.0.0.1:9")}),
    ),
    Break(finds={"clock-skew": "timedatectl set-ntp true"}, around=cluster_changes.ahead),
    Break(
        finds={
            "operator-down": "kubectl logs deployment/training-operator -n kubeflow",
            "gang-unused": "scheduler: coscheduling",
        },
        there=lambda _: [
            {**healthy.OPERATOR, "status": {"availableReplicas": None, "readyReplicas": None}},
            healthy.kind("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", "Namespaced"),
        ],
    ),
    Break(
        finds={"webhook-unreachable": "kubectl get validatingwebhookconfigurations"},
        there=lambda namespace: [cluster_changes.away(namespace)],
    ),
    Break(
        finds={"webhook-missing": "?ref=v1.9.3"},
        around=lambda on: cluster_changes.without_object(on.plane, _HOOK),
    ),
    Break(
        finds={
            "queue-uncovered": "coveredResources: [memory]",
            "workload-priority-class-missing": "kind: WorkloadPriorityClass, metadata: {name: urgent}",
        },
        there=lambda namespace: [
            *_KUEUE,
            *cluster_changes.kueues_webhook(namespace),
            local_queue(namespace),
            cluster_queue(),
        ],
        platform={"kfpytorch": {"gang": {"scheduler": "kueue", "queue": "team"}}},
        request={
            "custom": {
                "workerReplicas": {"replicas": 1},
                "kfpytorch": {"gang": {"priorityClassName": "urgent"}},
            }
        },
    ),
    Break(
        finds={
            "job-rejected": "the command render prints the job",
            "pod-rejected": "render prints the pod's template",
        },
        there=lambda namespace: [
            *cluster_changes.refusing(namespace, ("kubeflow.org", "pytorchjobs")),
            *cluster_changes.refusing(namespace, ("", "pods")),
        ],
    ),
    Break(
        finds={
            "job-changed": "kubectl get mutatingwebhookconfigurations",
            "pod-changed": "set the same in the settings",
        },
        there=lambda namespace: [
            *cluster_changes.altering(
                namespace, ("kubeflow.org", "pytorchjobs"), "/spec/pytorchReplicaSpecs/Worker/replicas", "3"
            ),
            *cluster_changes.altering(namespace, ("", "pods"), "/spec/schedulerName", "'yunikorn'"),
        ],
    ),
    Break(
        finds={
            "quota-too-small": '{"spec":{"hard":{"requests.cpu":"10"}}}',
            "limit-range": "kubectl edit limitrange most",
            "template-placeholder": (
                '{"template": {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": null}}}}'
            ),
        },
        there=lambda namespace: [
            healthy.quota(namespace, **{"requests.cpu": "4"}),
            healthy.limit_range(namespace, max={"cpu": "1500m"}),
            healthy.pod_template(
                namespace, "gang-scheduling-template", labels={"scheduling.x-k8s.io/pod-group": "training"}
            ),
        ],
        request=workers(4, cpu="2"),
    ),
    Break(
        finds={
            "priority-class-missing": "kubectl create priorityclass urgent",
            "config-map-missing": "kubectl create configmap proxies",
            "secret-missing": "kubectl create secret generic keys",
            "volume-claim-missing": "kind: PersistentVolumeClaim, metadata: {name: data",
        },
        there=lambda namespace: [healthy.pod_template(namespace, "platform", _MISSING)],
        platform={"default-pod-template-name": "platform"},
    ),
    Break(finds={"no-ready-node": "kubectl uncordon"}, around=lambda on: fake_nodes.cordoned(on.plane)),
    Break(
        finds={
            "network-ingress": "policyTypes: [Ingress], ingress: [{from: [{podSelector:",
            "dns-not-ready": "kubectl get pods -n kube-system -l k8s-app=kube-dns",
            "connector-down": "kubectl describe service kfpytorch-backend",
            "flyte-route": "default-for-task-types: {pytorch: connector-service}",
        },
        there=lambda namespace: [
            healthy.policy("deny", namespace, policyTypes=["Ingress"]),
            healthy.endpoints("kube-dns", "kube-system", ready=False, **{"k8s-app": "kube-dns"}),
            healthy.endpoints("kfpytorch-backend", healthy.FLYTE, ready=False),
            healthy.changed(*_ROUTES, to=[{"pytorch": "pytorch"}]),
        ],
    ),
    Break(
        finds={
            "connector-rbac": "{apiGroups: [kubeflow.org], resources: [pytorchjobs], verbs: [create, get, "
        },
        there=lambda _: [connector()],
    ),
    Break(
        finds={"pod-security": "default-pod-security-context"},
        request={"custom": {"workerReplicas": {"replicas": 2}}},
        there=lambda namespace: [build_manifest("v1", "Namespace", namespace, labels=_RESTRICTED)],
    ),
    Break(
        finds={"service-account-missing": "kubectl create serviceaccount default"},
        around=lambda on: cluster_changes.without_object(on.plane, _ACCOUNT.format(on.namespace)),
    ),
    Break(
        finds={"output-store": "get, put, list and delete"},
        around=cluster_changes.s3(AWS_SECRET_ACCESS_KEY="anothers"),
    ),
    # The last one, because deleting the CRD deletes all jobs.
    Break(finds={"operator-crd-missing": "?ref=v1.9.3"}, around=cluster_changes.without_kind),
)
