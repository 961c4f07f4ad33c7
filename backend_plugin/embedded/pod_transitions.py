"""Functions that build a pod object or an event for each transition in the lifecycle of a pod. Pure."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text, get_text_map, get_texts
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.events import KUBELET
from backend_plugin.embedded.node_transitions import HOSTNAME
from backend_plugin.embedded.objects import (
    TRACKING,
    build_event_body,
    format_time,
    get_key,
    get_name,
    get_node_name,
    get_uid,
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

_NOT_THE_KUBELETS: Final = ("PodScheduled", "DisruptionTarget")
"""The types of pod conditions that other components than the kubelet write."""


def prepare_pod(pod: Manifest, port: int) -> Manifest:
    """Return a new pod with the annotation for its job's reserved port, and without GPU indices.

    A `nodeName` in the manifest becomes a node selector, so that the scheduler still binds the pod.
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
    """Return a copy of the pod that is bound to the node and the GPUs in `binding`."""
    bound = with_section(pod, "spec", nodeName=binding.node)
    if binding.gpus is not None:
        bound = with_annotations(bound, {GPU_INDICES: ",".join(map(str, binding.gpus))})
    return with_condition(bound, "PodScheduled", "True", now)


def mark_unschedulable(pod: Manifest, why: Unschedulable, now: datetime) -> Manifest:
    """Return the pod with the reason why it cannot be scheduled, in the condition `PodScheduled`."""
    return with_condition(pod, "PodScheduled", "False", now, reason=why.reason, message=why.message)


def mark_terminating(pod: Manifest, now: datetime) -> Manifest:
    """Return the pod with a deletion timestamp: `now` plus the grace period of the pod."""
    grace = get_int(pod, "spec", "terminationGracePeriodSeconds") or 0
    return with_metadata(
        pod,
        deletionTimestamp=format_time(now + timedelta(seconds=grace)),
        deletionGracePeriodSeconds=grace,
    )


def mark_removed(pod: Manifest, now: datetime) -> Manifest:
    """Return the pod as ended and terminating. Its finalizer `TRACKING` keeps the object in the store."""
    gone = pod if is_ended(pod) else with_section(pod, "status", phase="Failed")
    if is_terminating(pod):
        return gone
    return with_metadata(gone, deletionTimestamp=format_time(now), deletionGracePeriodSeconds=0)


def without_tracking(pod: Manifest) -> Manifest:
    """Return the pod without the finalizer `TRACKING`."""
    left = [each for each in get_texts(pod, "metadata", "finalizers") if each != TRACKING]
    return with_metadata(pod, finalizers=left) if is_tracked(pod) else pod


def mark_evicted(pod: Manifest, now: datetime) -> Manifest:
    """Return the pod with the condition `DisruptionTarget` of an eviction, because its node is drained."""
    reason, message = "EvictionByEvictionAPI", "Eviction API: evicting"
    return with_condition(pod, "DisruptionTarget", "True", now, reason=reason, message=message)


def mark_unready(pod: Manifest, now: datetime) -> Manifest:
    """Return a copy of the pod that is not ready, because its node is unreachable."""
    return with_condition(pod, "Ready", "False", now, reason="NodeNotReady")


def mark_node_lost(pod: Manifest, now: datetime) -> Manifest:
    """Return a copy of the pod that has failed, because its node was unreachable for too long."""
    reason, message = "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"
    return with_section(
        with_condition(pod, "DisruptionTarget", "True", now, reason=reason, message=message),
        "status",
        phase="Failed",
        reason="NodeLost",
        message=format_node_lost(get_node_name(pod), get_name(pod)),
    )


def merge_status(pod: Manifest, status: Manifest) -> Manifest:
    """Return the pod with the status from the kubelet. Conditions that other components wrote are kept."""
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


def iter_change_events(pod: Manifest, status: Manifest) -> Iterator[Manifest]:
    """Yield the events for the change from the current status of `pod` to `status`."""
    before = _get_containers(get_mapping(pod, "status"))
    for name, container in _get_containers(status).items():
        yield from _iter_container_events(pod, before.get(name, {}), container)


def iter_stop_events(pod: Manifest) -> Iterator[Manifest]:
    """Yield the events for a pod that starts to terminate."""
    for name, container in _get_containers(get_mapping(pod, "status")).items():
        if get_mapping(container, "state", "running"):
            yield build_event_body(KUBELET, "Killing", f"Stopping container {name}")


def _get_containers(status: Manifest) -> Mapping[str, Manifest]:
    both = (*get_mappings(status, "initContainerStatuses"), *get_mappings(status, "containerStatuses"))
    return {get_text(each, "name"): each for each in both}


def _iter_container_events(pod: Manifest, before: Manifest, now: Manifest) -> Iterator[Manifest]:
    name = get_text(now, "name")
    if _count_starts(now) > _count_starts(before):
        failed = _get_start_error(now)
        if failed:
            yield build_event_body(KUBELET, "Failed", f"Error: {get_text(failed, 'message')}", warning=True)
        else:
            yield build_event_body(KUBELET, "Started", f"Started container {name}")
    was, waiting = (get_mapping(each, "state", "waiting") for each in (before, now))
    if waiting and get_text(waiting, "reason") != get_text(was, "reason"):
        yield from _iter_waiting_events(pod, now, waiting)


def _count_starts(container: Manifest) -> int:
    state = get_mapping(container, "state")
    started = (
        "running" in state or "terminated" in state or "terminated" in get_mapping(container, "lastState")
    )
    return (get_int(container, "restartCount") or 0) + started


def _get_start_error(container: Manifest) -> Manifest:
    state = get_mapping(container, "state")
    ended = (
        {}
        if "running" in state
        else get_mapping(state, "terminated") or get_mapping(container, "lastState", "terminated")
    )
    return ended if get_text(ended, "reason") == "StartError" else {}


def _iter_waiting_events(pod: Manifest, container: Manifest, waiting: Manifest) -> Iterator[Manifest]:
    reason, message = get_text(waiting, "reason"), get_text(waiting, "message")
    if reason in ("ErrImagePull", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError"):
        yield build_event_body(KUBELET, "Failed", f"Error: {message or reason}", warning=True)
    elif reason == "ImagePullBackOff":
        yield build_event_body(KUBELET, "BackOff", f'Back-off pulling image "{get_text(container, "image")}"')
    elif reason == "CrashLoopBackOff":
        name, key = get_text(container, "name"), get_key(pod)
        subject = f"{name} in pod {key.name}_{key.namespace}({get_uid(pod)})"
        yield build_event_body(
            KUBELET, "BackOff", f"Back-off restarting failed container {subject}", warning=True
        )
