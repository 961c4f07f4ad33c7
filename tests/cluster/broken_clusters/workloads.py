"""Breaks in a namespace, in nodes and around the cluster: problems that a job meets."""

from collections.abc import Mapping
from typing import Any, Final

from rig.api import Manifest

from backend_plugin.connection import Server
from broken_clusters import cluster_changes, external_services, healthy
from broken_clusters.break_case import Break
from broken_clusters.healthy import FLYTE, GPU, changed
from broken_clusters.manifests import build_manifest, deployment, endpoints, policy, service

_CONNECTOR: Final = ("plugins", "connector-service", "defaultConnector")
_ROUTES: Final = ("tasks", "task-plugins")


def quota(namespace: str, used: str = "0", **hard: str) -> Manifest:
    said = {key.replace("_", "."): value for key, value in hard.items()}
    status = {"hard": said, "used": dict.fromkeys(said, used)}
    return build_manifest("v1", "ResourceQuota", "team", namespace, spec={"hard": said}, status=status)


def limit_range(namespace: str, **said: Any) -> Manifest:
    limit = {"type": "Container", **said}
    return build_manifest("v1", "LimitRange", "most", namespace, spec={"limits": [limit]})


def workers(count: int = 1, **requests: str) -> Mapping[str, Any]:
    """Return a task with `count` workers, each with these resource requests and limits."""
    named = {"gpu": "GPU", "cpu": "CPU", "memory": "MEMORY"}
    asked = [{"name": named[key], "value": value} for key, value in requests.items()]
    container = {"image": "image:1", "args": ["true"], "resources": {"requests": asked, "limits": asked}}
    return {"custom": {"workerReplicas": {"replicas": count}}, "template": {"container": container}}


def _connector(version: str) -> Manifest:
    there = deployment("flyte-kfpytorch", FLYTE, f"example.org/kfpytorch-backend:{version}")
    labels = {"app.kubernetes.io/name": "kfpytorch-backend", "app.kubernetes.io/version": version}
    status = {"replicas": 1, "availableReplicas": 1, "readyReplicas": 1}
    return {**there, "metadata": {**there["metadata"], "labels": labels}, "status": status}


BREAKS: Final = (
    # ---- the task
    Break(
        finds="task-rejected",
        remedy="write",
        asks={
            "custom": {
                "workerReplicas": {"replicas": 2},
                "elasticConfig": {"minReplicas": 3, "maxReplicas": 2},
            }
        },
    ),
    Break(
        finds="template-missing",
        remedy="leave out default-pod-template-name",
        platform={"default-pod-template-name": "gone"},
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
    Break(
        finds="pod-changed",
        how="by-a-limit-range",
        remedy="limitranges",
        there=lambda namespace: [
            limit_range(namespace, default={"ephemeral-storage": "1Gi"}),
        ],
    ),
    # ---- quotas
    Break(
        finds="quota-too-small",
        remedy='{"spec":{"hard":{"requests.cpu":"10"}}}',
        there=lambda namespace: [quota(namespace, requests_cpu="4")],
        asks=workers(4, cpu="2"),
    ),
    Break(
        finds="quota-full",
        remedy="kubectl patch resourcequota team",
        there=lambda namespace: [quota(namespace, used="3", pods="4")],
    ),
    Break(
        finds="limit-range",
        remedy="kubectl edit limitrange most",
        there=lambda namespace: [
            limit_range(namespace, max={"cpu": "1500m"}),
        ],
        asks=workers(1, cpu="2"),
    ),
    # ---- nodes
    Break(
        finds="no-ready-node",
        remedy="kubectl uncordon",
        around=cluster_changes.nodes({"unschedulable": True}),
    ),
    Break(
        finds="node-selector",
        remedy="--overwrite pool=a100",
        platform={"default-node-selector": {"pool": "a100"}},
    ),
    Break(
        finds="node-taints",
        remedy='{key: nvidia.com/gpu, operator: Equal, value: "present", effect: NoSchedule}',
        around=cluster_changes.nodes({"taints": [{"key": GPU, "value": "present", "effect": "NoSchedule"}]}),
    ),
    Break(
        finds="device-missing",
        remedy="then add nodes with it",
        platform={"gpu-resource-name": "amd.com/gpu"},
        asks=workers(1, gpu="1"),
        around=cluster_changes.nodes_have({GPU: "8"}, labels=dict.fromkeys(healthy.LABELS)),
    ),
    Break(
        finds="mig-profile",
        remedy="{nvidia.com/mig-1g.10gb: 1}",
        asks=workers(1, gpu="1"),
        around=cluster_changes.nodes_have({"nvidia.com/mig-1g.10gb": "7"}),
    ),
    Break(finds="replica-too-large", remedy="add larger nodes", asks=workers(2, gpu="16")),
    Break(finds="gang-too-large", remedy="request fewer replicas", asks=workers(5, gpu="4")),
    Break(
        finds="device-plugin",
        remedy="helm install nvidia-device-plugin",
        around=cluster_changes.nodes_have({}),
    ),
    Break(
        finds="gpu-unhealthy",
        remedy="kubectl drain node-0",
        around=cluster_changes.nodes_have({GPU: "8"}, allocatable={GPU: "7"}),
    ),
    # ---- the network
    Break(
        finds="network-ingress",
        remedy="policyTypes: [Ingress], ingress: [{from: [{podSelector:",
        there=lambda namespace: [policy("deny", namespace, policyTypes=["Ingress"])],
    ),
    Break(
        finds="network-egress",
        remedy="policyTypes: [Egress], egress: [{to: [{podSelector:",
        there=lambda namespace: [
            policy("dns", namespace, policyTypes=["Egress"], egress=[{"ports": [{"port": 53}]}])
        ],
    ),
    Break(
        finds="network-ports",
        remedy="policyTypes: [Ingress], ingress: [{from: [{podSelector:",
        there=lambda namespace: [
            policy("meet", namespace, policyTypes=["Ingress"], ingress=[{"ports": [{"port": 23456}]}])
        ],
    ),
    Break(
        finds="network-dns",
        remedy="{port: 53, protocol: UDP}",
        there=lambda namespace: [
            policy(
                "peers",
                namespace,
                policyTypes=["Egress"],
                egress=[{"ports": [{"port": 1024, "endPort": 65535}]}],
            )
        ],
    ),
    Break(
        finds="dns-not-ready",
        remedy="kubectl get pods -n kube-system -l k8s-app=kube-dns",
        there=lambda _: [endpoints("kube-dns", "kube-system", ready=False, **{"k8s-app": "kube-dns"})],
    ),
    Break(
        finds="hostname-length",
        remedy="leave setHostnameAsFQDN out",
        pod={"setHostnameAsFQDN": True, "subdomain": "a-subdomain-that-is-rather-long"},
    ),
    # ---- service account, pod security and images
    Break(
        finds="pod-security",
        remedy="default-pod-security-context",
        asks={"custom": {"workerReplicas": {"replicas": 2}}},
        around=cluster_changes.secured,
    ),
    Break(
        finds="pod-security",
        how="of-the-operator",
        remedy="enforce=baseline --overwrite  # the container ",
        around=cluster_changes.secured,
    ),
    Break(
        finds="service-account-missing",
        remedy="kubectl create serviceaccount default",
        around=cluster_changes.without_account,
    ),
    Break(
        finds="pull-secret-missing",
        remedy="kubectl create secret docker-registry pull",
        pod={"imagePullSecrets": [{"name": "pull"}]},
    ),
    Break(
        finds="image-reference-invalid",
        remedy="write it as host/path/name:tag",
        asks={"template": {"container": {"image": "https://example.org/Train:1", "args": ["true"]}}},
    ),
    Break(
        finds="image-tag-missing",
        remedy="example.org/train:VERSION",
        asks={"template": {"container": {"image": "example.org/train:latest", "args": ["true"]}}},
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
    Break(
        finds="volume-unbound",
        remedy="kubectl describe pvc data",
        there=lambda namespace: [cluster_changes.claim(namespace, "ReadWriteMany", phase="Lost")],
        pod={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
    ),
    Break(
        finds="volume-shared",
        remedy="accessModes: [ReadWriteMany]",
        there=lambda namespace: [cluster_changes.claim(namespace, "ReadWriteOnce", phase="Bound")],
        pod={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
    ),
    # ---- outside the namespace
    Break(
        finds="output-store",
        remedy="get, put, list and delete",
        asks={"output_prefixes": ["file:///nowhere/at/all"]},
    ),
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
        finds="output-store",
        how="s3-that-is-not-there",
        remedy="AWS_ENDPOINT_URL_S3",
        around=external_services.s3(AWS_ENDPOINT_URL_S3="http://127.0.0.1:9", AWS_MAX_ATTEMPTS="1"),
    ),
    Break(
        finds="flyte-route",
        remedy="default-for-task-types: {pytorch: connector-service}",
        there=lambda _: [changed(*_ROUTES, "default-for-task-types", to=[{"pytorch": "pytorch"}])],
    ),
    Break(
        finds="flyte-route",
        how="not-enabled",
        remedy="enabled-plugins",
        there=lambda _: [changed(*_ROUTES, "enabled-plugins", to=["container", "pytorch"])],
    ),
    Break(
        finds="flyte-connector",
        remedy="dns:///kfpytorch-backend.flyte.svc.cluster.local:8000",
        there=lambda _: [changed(*_CONNECTOR, to=None)],
    ),
    Break(
        finds="flyte-timeouts",
        remedy="write defaultTimeout",
        there=lambda _: [changed(*_CONNECTOR, "timeouts", to={"GetTask": "10s"})],
    ),
    Break(
        finds="flyte-names",
        remedy="write kfpytorch",
        there=lambda _: [
            changed("plugins", "connector-service", "connectors", to={"kfPytorch": healthy.CONNECTOR})
        ],
    ),
    Break(
        finds="flyte-retries",
        remedy='"waitForReady":true',
        there=lambda _: [changed(*_CONNECTOR, "defaultServiceConfig", to=None)],
    ),
    Break(
        finds="flyte-retries",
        remedy='"CANCELLED"',
        there=lambda _: [
            changed(
                *_CONNECTOR, "defaultServiceConfig", to='{"methodConfig":[{"name":[{}],"waitForReady":true}]}'
            )
        ],
    ),
    Break(
        finds="flyte-timeout",
        remedy="defaultTimeout: 60s",
        there=lambda _: [changed(*_CONNECTOR, "defaultTimeout", to=None)],
    ),
    Break(
        finds="connector-service",
        remedy="kubectl get services -n flyte",
        there=lambda _: [changed(*_CONNECTOR, "endpoint", to="dns:///kfpytorch.flyte.svc:8000")],
    ),
    Break(
        finds="connector-service",
        how="port",
        remedy="kubectl get services -n flyte",
        there=lambda _: [service("kfpytorch-backend", FLYTE, 9000)],
    ),
    Break(
        finds="connector-down",
        remedy="kubectl describe service kfpytorch-backend",
        there=lambda _: [endpoints("kfpytorch-backend", FLYTE, ready=False)],
    ),
    Break(
        finds="connector-unreachable",
        remedy="kubectl get services,pods -A -l app.kubernetes.io/name=kfpytorch-backend",
        asks={"connector": Server(address="127.0.0.1:1")},
    ),
    Break(
        finds="connector-unreachable",
        how="asked-with-tls",
        remedy="# and for Flyte insecure: true",
        around=external_services.connector("grpcs://127.0.0.1", secured=False),
    ),
    Break(
        finds="connector-unreachable",
        how="asked-without-tls",
        remedy="# and for Flyte insecure: false",
        around=external_services.connector("127.0.0.1", secured=True),
    ),
    Break(
        finds="connector-unreachable",
        how="of-an-unknown-authority",
        remedy="--ca ca.crt",
        around=external_services.connector("grpcs://127.0.0.1", secured=True),
    ),
    Break(
        finds="connector-unreachable",
        how="for-another-name",
        remedy="or issue one for localhost, too",
        around=external_services.connector("grpcs://localhost", secured=True, known=True),
    ),
    Break(
        finds="connector-rbac",
        remedy="{apiGroups: [kubeflow.org], resources: [pytorchjobs], verbs: [create, get, list, watch, ",
        there=lambda _: [_connector("1.0.0")],
    ),
    Break(
        finds="connector-version-mismatch",
        remedy="install flytekitplugins-kfpytorch 0.9.0 from its repository",
        there=lambda _: [_connector("0.9.0"), *cluster_changes.permitted("flyte", "default")],
        asks={"release": "1.0.0"},
    ),
    # ---- the last one, because deleting the CRD deletes all jobs
    Break(finds="operator-crd-missing", remedy="?ref=v1.9.3", around=cluster_changes.without_kind),
)
