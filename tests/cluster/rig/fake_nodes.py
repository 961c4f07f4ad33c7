"""Simulated nodes and pods, run by kwok."""

import contextlib

import yaml

from rig.api import build_manifest, has_condition
from rig.tools import module_directory

# The second one ends the pods of a Job immediately.
_UNUSED = ("kustomization.yaml", "pod-complete.yaml")
_MARK = {"kwok.x-k8s.io/node": "fake"}
RUN = "kfpytorch.test/run"
"""Annotation with the time that a pod runs before it succeeds, as a Go duration: `1500ms`.

A pod without it runs until it is deleted.
"""
BY_HAND = "kfpytorch.test/by-hand"
"""Annotation of a pod whose status a test writes; kwok only removes the pod when it is deleted."""
_NOT_BY_HAND = {"key": f'.metadata.annotations["{BY_HAND}"]', "operator": "DoesNotExist"}


def start(plane, nodes=2, capacity=None):
    """Start kwok and create nodes with this capacity; return when they are ready."""
    module = module_directory("kwok", "sigs.k8s.io/kwok") / "kustomize/stage"
    stages = [
        yaml.safe_load(file.read_text())
        for stage in ("node/fast", "node/heartbeat-with-lease", "pod/fast")
        for file in sorted((module / stage).glob("*.yaml"))
        if file.name not in _UNUSED
    ]
    (begins,) = (each for each in stages if each["metadata"]["name"] == "pod-ready")
    begins["spec"]["selector"]["matchExpressions"].append(_NOT_BY_HAND)
    config = plane.folder / "kwok.yaml"
    config.write_text(yaml.safe_dump_all([*stages, _ENDING]))
    process = plane.enter(
        plane.process(
            "kwok",
            (
                f"--kubeconfig={plane.kubeconfig()}",
                f"--config={config}",
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
                "--cidr=10.1.0.0/16",
                "--node-ip=10.2.0.1",
                "--node-lease-duration-seconds=40",
            ),
            {"HOME": str(plane.folder)},
        )
    )
    for number in range(nodes):
        plane.admin.apply(node(f"fake-{number}", capacity or {}))
    process.wait_until(lambda: all(map(is_ready, plane.admin.items("/api/v1/nodes"))), 90)
    return process


def node(name, capacity):
    has = {"cpu": "32", "memory": "256Gi", "pods": "500", **capacity}
    labels, status = {"kubernetes.io/hostname": name}, {"allocatable": has, "capacity": has}
    return build_manifest("v1", "Node", name, annotations=dict(_MARK), labels=labels, status=status)


@contextlib.contextmanager
def cordoned(plane):
    nodes = [f"/api/v1/nodes/{each['metadata']['name']}" for each in plane.admin.items("/api/v1/nodes")]
    try:
        for node in nodes:
            plane.admin.patch(node, {"spec": {"unschedulable": True}})
        yield
    finally:
        for node in nodes:
            plane.admin.patch(node, {"spec": {"unschedulable": None}})


def is_ready(node):
    """True if a node exists, is ready and has no taints."""
    return node is not None and has_condition(node, "Ready") and not node["spec"].get("taints")


_ENDING = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "Stage",
    "metadata": {"name": "pod-ends-well"},
    "spec": {
        "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
        "selector": {
            "matchExpressions": [
                {"key": f'.metadata.annotations["{RUN}"]', "operator": "Exists"},
                {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
                {"key": ".status.phase", "operator": "In", "values": ["Running"]},
            ]
        },
        "delay": {"durationFrom": {"expressionFrom": f'.metadata.annotations["{RUN}"]'}},
        "next": {
            "statusTemplate": """{{ $now := Now }}
conditions:
- {type: Ready, status: "False", reason: PodCompleted, lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: false
  restartCount: 0
  state:
    terminated:
      {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}
{{ end }}
phase: Succeeded
"""
        },
    },
}
