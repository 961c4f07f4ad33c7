"""Functions that build a pod object for each transition in its lifecycle. Pure."""

from datetime import datetime, timedelta
from typing import Final

from backend_plugin.core.reading import entries, number, section, text, texts
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.node_rejections import Rejection
from backend_plugin.embedded.nodes import GPU_INDICES, Binding, Unschedulable, gpu_slices
from backend_plugin.embedded.objects import (
    condition,
    has_begun,
    merged_conditions,
    name_of,
    node_of,
    stamp,
    with_annotations,
    with_conditions,
    with_metadata,
    with_section,
)
from backend_plugin.embedded.pod_names import PORT
from backend_plugin.embedded.shim.lifecycle import node_lost

_GRACE: Final = 30
"""The default grace period of Kubernetes in seconds."""
_NOT_THE_KUBELETS: Final = ("PodScheduled", "DisruptionTarget")
"""The conditions that other components write."""


def sent(pod: Manifest, port: int) -> Manifest:
    """Return a new pod with its job's port. Remove GPU indices of its author: the scheduler sets them."""
    said = texts(section(pod, "metadata"), "annotations")
    kept = {key: value for key, value in said.items() if key != GPU_INDICES}
    return with_metadata(pod, annotations={**kept, PORT: str(port)})


def is_placed(pod: Manifest) -> bool:
    """True if the scheduler has placed the pod, or the kubelet of the node that it names has accepted it."""
    conditions = entries(section(pod, "status"), "conditions")
    placed = any(
        text(each, "type") == "PodScheduled" and text(each, "status") == "True" for each in conditions
    )
    return bool(node_of(pod)) and (placed or has_begun(pod))


def rejected(pod: Manifest, why: Rejection, now: datetime) -> Manifest:
    """Return the pod as failed: the kubelet of the node that it names has rejected it."""
    message = f"Pod was rejected: {why.message}"
    return with_section(
        pod, "status", phase="Failed", reason=why.reason, message=message, startTime=stamp(now)
    )


def orphaned(pod: Manifest, now: datetime) -> Manifest:
    """Return the pod as failed: the node that it names does not exist."""
    disrupted = condition(
        "DisruptionTarget", "True", reason="DeletionByPodGC", message="PodGC: node no longer exists", now=now
    )
    return with_section(with_conditions(pod, disrupted), "status", phase="Failed")


def bound(pod: Manifest, binding: Binding, now: datetime) -> Manifest:
    """Return the pod as bound to a node."""
    found = with_section(pod, "spec", nodeName=binding.node)
    if binding.gpus is not None:
        found = with_annotations(found, {GPU_INDICES: ",".join(map(str, binding.gpus))})
    return with_conditions(found, condition("PodScheduled", "True", reason="", message="", now=now))


def unschedulable(pod: Manifest, why: Unschedulable, now: datetime) -> Manifest:
    """Return the pod with the reason why it cannot be scheduled."""
    return with_conditions(
        pod, condition("PodScheduled", "False", reason=why.reason, message=why.message, now=now)
    )


def terminating(pod: Manifest, now: datetime) -> Manifest:
    """Return the pod with a deletion timestamp, according to its grace period."""
    said = number(section(pod, "spec"), "terminationGracePeriodSeconds")
    grace = _GRACE if said is None else max(0, said)
    return with_metadata(
        pod,
        deletionTimestamp=stamp(now + timedelta(seconds=grace)),
        deletionGracePeriodSeconds=grace,
    )


def evicted(pod: Manifest, now: datetime) -> Manifest:
    """Return the pod with the condition of an eviction, because its node is drained."""
    return with_conditions(
        pod,
        condition(
            "DisruptionTarget",
            "True",
            reason="EvictionByEvictionAPI",
            message="Eviction API: evicting",
            now=now,
        ),
    )


def unready(pod: Manifest, now: datetime) -> Manifest:
    """Return the pod as not ready, because its node is unreachable."""
    return with_conditions(pod, condition("Ready", "False", reason="NodeNotReady", message="", now=now))


def lost(pod: Manifest, now: datetime) -> Manifest:
    """Return the pod as failed, because its node was unreachable for too long."""
    disrupted = condition(
        "DisruptionTarget",
        "True",
        reason="DeletionByTaintManager",
        message="Taint manager: deleting due to NoExecute taint",
        now=now,
    )
    return with_section(
        with_conditions(pod, disrupted),
        "status",
        phase="Failed",
        reason="NodeLost",
        message=node_lost(node_of(pod), name_of(pod)),
    )


def reported(pod: Manifest, status: Manifest) -> Manifest:
    """Return the pod with the status from the kubelet. Conditions of other components are kept."""
    kept = [
        each
        for each in entries(section(pod, "status"), "conditions")
        if text(each, "type") in _NOT_THE_KUBELETS
    ]
    told = merged_conditions(entries(status, "conditions"), kept)
    return {**pod, "status": {**status, "conditions": told}}


def with_gpus(pod: Manifest) -> Manifest:
    """Return the pod as the kubelet runs it: each container sees only the GPUs that it requests."""
    if GPU_INDICES not in section(pod, "metadata", "annotations"):
        return pod
    slices, spec = gpu_slices(pod), section(pod, "spec")
    seen = {
        key: [
            _seeing(container, ",".join(map(str, slices[text(container, "name")])))
            for container in entries(spec, key)
        ]
        for key in ("initContainers", "containers")
        if key in spec
    }
    return with_section(pod, "spec", **seen)


def _seeing(container: Manifest, devices: str) -> Manifest:
    variable = {"name": "CUDA_VISIBLE_DEVICES", "value": devices}
    return {**container, "env": [*entries(container, "env"), variable]}
