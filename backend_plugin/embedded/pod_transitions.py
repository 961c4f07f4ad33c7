"""Functions that build a pod object for each transition in its lifecycle. Pure."""

from datetime import datetime, timedelta
from typing import Final

from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text, get_text_map
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.node_transitions import HOSTNAME
from backend_plugin.embedded.objects import (
    TRACKING,
    build_condition,
    format_time,
    get_name,
    get_node_name,
    is_ended,
    is_terminating,
    is_tracked,
    merge_conditions,
    with_annotations,
    with_condition,
    with_metadata,
    with_section,
)
from backend_plugin.embedded.pod_addresses import PORT
from backend_plugin.embedded.scheduling_cycle import GPU_INDICES, Binding, Unschedulable, compute_gpu_slices
from backend_plugin.embedded.shim.lifecycle import format_node_lost

_GRACE: Final = 30
"""The default grace period of Kubernetes in seconds."""
_NOT_THE_KUBELETS: Final = ("PodScheduled", "DisruptionTarget")
"""The conditions that other components write."""


def prepare_pod(pod: Manifest, port: int) -> Manifest:
    """Return a new pod with an annotation for the reserved port of its job, and without one for GPUs.

    A `nodeName` in the manifest becomes a node selector, so that the scheduler still places the pod.
    """
    annotations = get_text_map(pod, "metadata", "annotations")
    others = {key: value for key, value in annotations.items() if key != GPU_INDICES}
    pod = with_metadata(pod, annotations={**others, PORT: str(port)})
    if not (node := get_node_name(pod)):
        return pod
    spec = {key: value for key, value in get_mapping(pod, "spec").items() if key != "nodeName"}
    selector = {**get_text_map(spec, "nodeSelector"), HOSTNAME: node}
    return {**pod, "spec": {**spec, "nodeSelector": selector}}


def bind(pod: Manifest, binding: Binding, now: datetime) -> Manifest:
    """Return the pod as bound to a node."""
    bound = with_section(pod, "spec", nodeName=binding.node)
    if binding.gpus is not None:
        bound = with_annotations(bound, {GPU_INDICES: ",".join(map(str, binding.gpus))})
    return with_condition(bound, build_condition("PodScheduled", "True", now=now))


def mark_unschedulable(pod: Manifest, why: Unschedulable, now: datetime) -> Manifest:
    """Return the pod with the reason why it cannot be scheduled."""
    condition = build_condition("PodScheduled", "False", reason=why.reason, message=why.message, now=now)
    return with_condition(pod, condition)


def mark_terminating(pod: Manifest, now: datetime) -> Manifest:
    """Return the pod with a deletion timestamp, according to its grace period."""
    seconds = get_int(pod, "spec", "terminationGracePeriodSeconds")
    grace = _GRACE if seconds is None else max(0, seconds)
    return with_metadata(
        pod,
        deletionTimestamp=format_time(now + timedelta(seconds=grace)),
        deletionGracePeriodSeconds=grace,
    )


def mark_removed(pod: Manifest, now: datetime) -> Manifest:
    """Return the final state of a removed pod whose object stays until its operator has counted it.

    The phase of a pod that had not ended becomes Failed.
    """
    gone = pod if is_ended(pod) else with_section(pod, "status", phase="Failed")
    if is_terminating(pod):
        return gone
    return with_metadata(gone, deletionTimestamp=format_time(now), deletionGracePeriodSeconds=0)


def without_tracking(pod: Manifest) -> Manifest:
    """Return the pod without the finalizer `TRACKING` (see `objects`)."""
    if not is_tracked(pod):
        return pod
    finalizers = get_mapping(pod, "metadata")["finalizers"]
    left = [each for each in finalizers if each != TRACKING] if isinstance(finalizers, list | tuple) else []
    return with_metadata(pod, finalizers=left)


def mark_evicted(pod: Manifest, now: datetime) -> Manifest:
    """Return the pod with the condition of an eviction, because its node is drained."""
    reason, message = "EvictionByEvictionAPI", "Eviction API: evicting"
    return with_condition(
        pod, build_condition("DisruptionTarget", "True", reason=reason, message=message, now=now)
    )


def mark_unready(pod: Manifest, now: datetime) -> Manifest:
    """Return the pod as not ready, because its node is unreachable."""
    return with_condition(pod, build_condition("Ready", "False", reason="NodeNotReady", now=now))


def mark_node_lost(pod: Manifest, now: datetime) -> Manifest:
    """Return the pod as failed, because its node was unreachable for too long."""
    reason, message = "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"
    disrupted = build_condition("DisruptionTarget", "True", reason=reason, message=message, now=now)
    return with_section(
        with_condition(pod, disrupted),
        "status",
        phase="Failed",
        reason="NodeLost",
        message=format_node_lost(get_node_name(pod), get_name(pod)),
    )


def merge_status(pod: Manifest, status: Manifest) -> Manifest:
    """Return the pod with the status from the kubelet. Conditions of other components are kept."""
    stored = get_mappings(pod, "status", "conditions")
    kept = [each for each in stored if each.get("type") in _NOT_THE_KUBELETS]
    conditions = merge_conditions(get_mappings(status, "conditions"), kept)
    return {**pod, "status": {**status, "conditions": conditions}}


def with_visible_gpus(pod: Manifest) -> Manifest:
    """Return the pod as the kubelet runs it: each container sees only the GPUs that it requests."""
    if GPU_INDICES not in get_mapping(pod, "metadata", "annotations"):
        return pod
    slices, spec = compute_gpu_slices(pod), get_mapping(pod, "spec")
    containers = {
        key: [
            _with_visible_devices(container, ",".join(map(str, slices[get_text(container, "name")])))
            for container in get_mappings(spec, key)
        ]
        for key in ("initContainers", "containers")
        if key in spec
    }
    return with_section(pod, "spec", **containers)


def _with_visible_devices(container: Manifest, devices: str) -> Manifest:
    variable = {"name": "CUDA_VISIBLE_DEVICES", "value": devices}
    return {**container, "env": [*get_mappings(container, "env"), variable]}
