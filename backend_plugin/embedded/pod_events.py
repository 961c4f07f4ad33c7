"""What the kubelet says of a pod while its containers come and go.

Lives here: PURE; two statuses, one after the other → what there is to say. Does not: how they come about.
"""

from collections.abc import Iterator, Mapping

from backend_plugin.core.reading import entries, number, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.events import KUBELET, Saying
from backend_plugin.embedded.objects import key_of, uid_of


def between(pod: Manifest, status: Manifest) -> Iterator[Saying]:
    """What happened to the containers of `pod`, which had its status until now and gets `status`."""
    before = _containers(section(pod, "status"))
    for name, container in _containers(status).items():
        yield from _of_container(pod, before.get(name, {}), container)


def stopping(pod: Manifest) -> Iterator[Saying]:
    """What is said when a pod is told to end."""
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
    """How often it has been started, as far as its status tells."""
    state = section(container, "state")
    started = "running" in state or "terminated" in state or "terminated" in section(container, "lastState")
    return (number(container, "restartCount") or 0) + started


def _not_started(container: Manifest) -> Manifest:
    """The end of its last start, where that has come to nothing."""
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
