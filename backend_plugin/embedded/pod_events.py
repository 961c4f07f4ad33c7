"""The kubelet's events for changes in the status of a pod. Pure."""

from collections.abc import Iterator, Mapping

from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.events import KUBELET, build_body
from backend_plugin.embedded.objects import get_key, get_uid


def iter_change_events(pod: Manifest, status: Manifest) -> Iterator[Manifest]:
    """Yield the events for the change from the current status of `pod` to `status`."""
    before = _get_containers(get_mapping(pod, "status"))
    for name, container in _get_containers(status).items():
        yield from _iter_container_events(pod, before.get(name, {}), container)


def iter_stop_events(pod: Manifest) -> Iterator[Manifest]:
    """Yield the events for a pod that starts to terminate."""
    for name, container in _get_containers(get_mapping(pod, "status")).items():
        if get_mapping(container, "state", "running"):
            yield build_body(KUBELET, "Killing", f"Stopping container {name}")


def _get_containers(status: Manifest) -> Mapping[str, Manifest]:
    both = (*get_mappings(status, "initContainerStatuses"), *get_mappings(status, "containerStatuses"))
    return {get_text(each, "name"): each for each in both}


def _iter_container_events(pod: Manifest, before: Manifest, now: Manifest) -> Iterator[Manifest]:
    name = get_text(now, "name")
    if _count_starts(now) > _count_starts(before):
        failed = _get_start_error(now)
        if failed:
            yield build_body(KUBELET, "Failed", f"Error: {get_text(failed, 'message')}", warning=True)
        else:
            yield build_body(KUBELET, "Started", f"Started container {name}")
    was, waiting = (get_mapping(each, "state", "waiting") for each in (before, now))
    if waiting and get_text(waiting, "reason") != get_text(was, "reason"):
        yield from _iter_waiting_events(pod, now, waiting)


def _count_starts(container: Manifest) -> int:
    """Return the number of starts that a container status shows."""
    state = get_mapping(container, "state")
    started = (
        "running" in state or "terminated" in state or "terminated" in get_mapping(container, "lastState")
    )
    return (get_int(container, "restartCount") or 0) + started


def _get_start_error(container: Manifest) -> Manifest:
    """Return the terminated state if the last start failed, or an empty mapping."""
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
        yield build_body(KUBELET, "Failed", f"Error: {message or reason}", warning=True)
    elif reason == "ImagePullBackOff":
        yield build_body(KUBELET, "BackOff", f'Back-off pulling image "{get_text(container, "image")}"')
    elif reason == "CrashLoopBackOff":
        name, key = get_text(container, "name"), get_key(pod)
        subject = f"{name} in pod {key.name}_{key.namespace}({get_uid(pod)})"
        yield build_body(KUBELET, "BackOff", f"Back-off restarting failed container {subject}", warning=True)
