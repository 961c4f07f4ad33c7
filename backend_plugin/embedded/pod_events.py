"""The kubelet's events for changes in the status of a pod. Pure."""

from collections.abc import Iterator, Mapping

from backend_plugin.core.reading import entries, number, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.events import KUBELET, Saying
from backend_plugin.embedded.objects import key_of, uid_of


def between(pod: Manifest, status: Manifest) -> Iterator[Saying]:
    """Yield the events for the change from the current status of `pod` to `status`."""
    before = _containers(section(pod, "status"))
    for name, container in _containers(status).items():
        yield from _of_container(pod, before.get(name, {}), container)


def stopping(pod: Manifest) -> Iterator[Saying]:
    """Yield the events for a pod that starts to terminate."""
    for name, container in _containers(section(pod, "status")).items():
        if section(container, "state", "running"):
            yield _say("Killing", f"Stopping container {name}")


def _containers(status: Manifest) -> Mapping[str, Manifest]:
    both = (*entries(status, "initContainerStatuses"), *entries(status, "containerStatuses"))
    return {text(each, "name"): each for each in both}


def _of_container(pod: Manifest, before: Manifest, now: Manifest) -> Iterator[Saying]:
    name = text(now, "name")
    if _starts(now) > _starts(before):
        failed = _not_started(now)
        if failed:
            yield _say("Failed", f"Error: {text(failed, 'message')}", warning=True)
        else:
            yield _say("Started", f"Started container {name}")
    was, waiting = (section(each, "state", "waiting") for each in (before, now))
    if waiting and text(waiting, "reason") != text(was, "reason"):
        yield from _of_waiting(pod, now, waiting)


def _starts(container: Manifest) -> int:
    """Return the number of starts that a container status shows."""
    state = section(container, "state")
    started = "running" in state or "terminated" in state or "terminated" in section(container, "lastState")
    return (number(container, "restartCount") or 0) + started


def _not_started(container: Manifest) -> Manifest:
    """Return the terminated state if the last start failed, or an empty mapping."""
    state = section(container, "state")
    ended = (
        {}
        if "running" in state
        else section(state, "terminated") or section(container, "lastState", "terminated")
    )
    return ended if text(ended, "reason") == "StartError" else {}


def _of_waiting(pod: Manifest, container: Manifest, waiting: Manifest) -> Iterator[Saying]:
    reason, message = text(waiting, "reason"), text(waiting, "message")
    if reason in ("ErrImagePull", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError"):
        yield _say("Failed", f"Error: {message or reason}", warning=True)
    elif reason == "ImagePullBackOff":
        yield _say("BackOff", f'Back-off pulling image "{text(container, "image")}"')
    elif reason == "CrashLoopBackOff":
        name, key = text(container, "name"), key_of(pod)
        whose = f"{name} in pod {key.name}_{key.namespace}({uid_of(pod)})"
        yield _say("BackOff", f"Back-off restarting failed container {whose}", warning=True)


def _say(reason: str, message: str, *, warning: bool = False) -> Saying:
    return Saying(reason=reason, message=message, component=KUBELET, warning=warning)
