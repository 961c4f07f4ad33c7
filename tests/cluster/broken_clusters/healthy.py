"""A cluster without problems: a real API server and operator, and the objects of the other components."""

import copy

import yaml
from propeller.wire import CONNECTOR
from rig.api import build_manifest


def deployment(name, namespace, image):
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    return build_manifest("apps/v1", "Deployment", name, namespace, spec=spec)


def kind(group, version, name, plural, scope="Cluster"):
    """Return the CRD of another project, with a schema that accepts any spec and status."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return build_manifest(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        f"{plural}.{group}",
        spec={
            "group": group,
            "scope": scope,
            "names": {"kind": name, "plural": plural, "singular": name.lower()},
            "versions": [served],
        },
        # The API server requires this annotation for API groups below k8s.io.
        annotations={"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs"},
    )


def policy(name, namespace, **spec):
    fields = {"podSelector": {}, **spec}
    return build_manifest("networking.k8s.io/v1", "NetworkPolicy", name, namespace, spec=fields)


def quota(namespace, **hard):
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    return build_manifest("v1", "ResourceQuota", "team", namespace, spec={"hard": hard}, status=status)


def limit_range(namespace, **limits):
    spec = {"limits": [{"type": "Container", **limits}]}
    return build_manifest("v1", "LimitRange", "most", namespace, spec=spec)


def pod_template(namespace, name, spec=None, **metadata):
    """Return a PodTemplate; `metadata` has the labels and annotations of its pods."""
    container = {"name": "default", "image": "nothing:1"}
    template = {"metadata": metadata, "spec": {"containers": [container], **(spec or {})}}
    return build_manifest("v1", "PodTemplate", name, namespace, template=template)


def endpoints(service, namespace, *, ready=True, **labels):
    fields = {"kubernetes.io/service-name": service, **labels}
    one = {"addresses": ["10.1.0.7"], "conditions": {"ready": ready}}
    return build_manifest(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        f"{service}-1",
        namespace,
        labels=fields,
        addressType="IPv4",
        endpoints=[one],
        ports=[{"name": "all", "port": 53}],
    )


def service(name, namespace, port, **labels):
    ports = [{"name": "main", "port": port}]
    return build_manifest(
        "v1", "Service", name, namespace, labels=labels, spec={"clusterIP": "None", "ports": ports}
    )


FLYTE = "flyte"
GPU = "nvidia.com/gpu"
LABELS = {"nvidia.com/gpu.present": "true", "cloud.google.com/gke-accelerator": "nvidia-l4"}
"""The labels of each node; an example selects one of them."""
NODES = ("node-0", "node-1")
OPERATOR = deployment(
    "training-operator", "kubeflow", "registry.example.org/kubeflow/training-operator:v1.9.3"
)
PROPELLER_RUNS = deployment(
    "flyte-binary", FLYTE, "registry.example.org/flyteorg/flyte-binary-release:v1.16.8"
)
_ENDPOINT = {"endpoint": "dns:///kfpytorch-backend.flyte.svc.cluster.local:8000"}
PROPELLER = {
    "tasks": {
        "task-plugins": {
            "enabled-plugins": ["container", "sidecar", "connector-service"],
            "default-for-task-types": {"container": "container", "pytorch": "connector-service"},
        }
    },
    "plugins": {"connector-service": {"defaultConnector": {**CONNECTOR["defaultConnector"], **_ENDPOINT}}},
}


def make(plane):
    plane.namespace(FLYTE)
    for manifest in (
        configuration(PROPELLER),
        service("kfpytorch-backend", FLYTE, 8000),
        endpoints("kfpytorch-backend", FLYTE),
        service("kube-dns", "kube-system", 53, **{"k8s-app": "kube-dns"}),
        endpoints("kube-dns", "kube-system", **{"k8s-app": "kube-dns"}),
    ):
        plane.admin.apply(manifest)
    # Deployments have the status that their controller would write.
    status = {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}
    for manifest in (OPERATOR, PROPELLER_RUNS):
        plane.admin.apply_with_status({**manifest, "status": status})
    for name in NODES:
        node(plane, name)


def configuration(settings):
    return build_manifest(
        "v1", "ConfigMap", "flyte-config", FLYTE, data={"000-core.yaml": yaml.safe_dump(dict(settings))}
    )


def changed(*path, to):
    """Return the configuration of Flyte with another value at `path`."""
    settings = copy.deepcopy(dict(PROPELLER))
    part = settings
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = to
    return configuration(settings)


def node(plane, name):
    """Create a ready node with eight GPUs, and write the status that its kubelet would write."""
    labels = {"kubernetes.io/hostname": name, **LABELS}
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110", GPU: "8"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "is ready"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    plane.admin.apply_with_status(build_manifest("v1", "Node", name, labels=labels, status=status))
    # No controller runs here that would remove the taint of a new node.
    plane.admin.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
