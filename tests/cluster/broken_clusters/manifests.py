"""Builders for objects that other projects create in a cluster."""

from collections.abc import Mapping
from typing import Any

from rig.api import Manifest, build_manifest


def deployment(name: str, namespace: str, image: str) -> Manifest:
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    return build_manifest("apps/v1", "Deployment", name, namespace, spec=spec)


def kind(group: str, version: str, name: str, plural: str, scope: str = "Cluster") -> Manifest:
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


def policy(name: str, namespace: str, **spec: Any) -> Manifest:
    fields = {"podSelector": {}, **spec}
    return build_manifest("networking.k8s.io/v1", "NetworkPolicy", name, namespace, spec=fields)


def quota(namespace: str, **hard: str) -> Manifest:
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    return build_manifest("v1", "ResourceQuota", "team", namespace, spec={"hard": hard}, status=status)


def limit_range(namespace: str, **limits: Any) -> Manifest:
    spec = {"limits": [{"type": "Container", **limits}]}
    return build_manifest("v1", "LimitRange", "most", namespace, spec=spec)


def pod_template(
    namespace: str, name: str, spec: Mapping[str, Any] | None = None, **metadata: Mapping[str, str]
) -> Manifest:
    """Return a PodTemplate; `metadata` has the labels and annotations of its pods."""
    container = {"name": "default", "image": "nothing:1"}
    template = {"metadata": metadata, "spec": {"containers": [container], **(spec or {})}}
    return build_manifest("v1", "PodTemplate", name, namespace, template=template)


def endpoints(service: str, namespace: str, *, ready: bool = True, **labels: str) -> Manifest:
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


def service(name: str, namespace: str, port: int, **labels: str) -> Manifest:
    ports = [{"name": "main", "port": port}]
    return build_manifest(
        "v1", "Service", name, namespace, labels=labels, spec={"clusterIP": "None", "ports": ports}
    )
