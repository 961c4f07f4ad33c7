"""Builds the bodies of the core/v1 Events of a job. The store adds names and counts."""

from collections.abc import Iterator
from typing import Final

from typing_extensions import assert_never

from backend_plugin.core.reading import entries, number, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.controller.objects import API_VERSION, KIND, OPERATOR
from backend_plugin.embedded.controller.values import (
    Action,
    CreatePod,
    CreateService,
    DeleteJob,
    DeletePod,
    DeleteService,
    Seen,
)
from backend_plugin.embedded.objects import stamp

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
_UNWANTED: Final = ("Succeeded", "Failed")


def event(seen: Seen, kind: str, reason: str, message: str) -> Manifest:
    """Return an event of the job.

    Args:
        seen: The input of the pass.
        kind: ``Normal`` or ``Warning``.
        reason: The reason of the event.
        message: The message of the event.
    """
    metadata = section(seen.job, "metadata")
    namespace, at = text(metadata, "namespace"), stamp(seen.now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": text(metadata, "name"),
            "namespace": namespace,
            "uid": text(metadata, "uid"),
        },
        "reason": reason,
        "message": message,
        "type": kind,
        "source": {"component": OPERATOR},
        "reportingComponent": OPERATOR,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def of_action(seen: Seen, action: Action, refusal: str | None = None) -> Manifest:
    """Return the event for an executed action, or for a rejected one if `refusal` has its message."""
    what, done = _told(seen, action)
    if refusal is None:
        return event(seen, NORMAL, f"Successful{what}", done)
    doing = "creating" if what.startswith("Create") else "deleting"
    return event(seen, WARNING, f"Failed{what}", f"Error {doing}: {refusal}")


def of_abnormal(seen: Seen, pod: Manifest) -> Iterator[Manifest]:
    """Yield events for a faulty active pod, from its containers, init containers or last condition."""
    status = section(pod, "status")
    metadata = section(pod, "metadata")
    if text(status, "phase") in _UNWANTED or metadata.get("deletionTimestamp"):
        return
    name = text(metadata, "name")
    containers = entries(status, "containerStatuses") or entries(status, "initContainerStatuses")
    for container in containers:
        yield from _of_container(seen, name, container)
    conditions = sorted(
        entries(status, "conditions"), key=lambda each: text(each, "lastTransitionTime"), reverse=True
    )
    if not containers and conditions and conditions[0].get("status") != "True":
        said = f"Error pod {name} condition message: {text(conditions[0], 'message')}"
        yield event(seen, WARNING, text(conditions[0], "reason"), said)


def _of_container(seen: Seen, pod: str, container: Manifest) -> Iterator[Manifest]:
    whose = f"Error pod {pod} container {text(container, 'name')}"
    terminated = section(container, "state", "terminated")
    code = number(terminated, "exitCode")
    if code:
        said = f"{whose} exitCode: {code} terminated message: {text(terminated, 'message')}"
        yield event(seen, WARNING, text(terminated, "reason"), said)
    waiting = section(container, "state", "waiting")
    if text(waiting, "message"):
        said = f"{whose} waiting message: {text(waiting, 'message')}"
        yield event(seen, WARNING, text(waiting, "reason"), said)


def _told(seen: Seen, action: Action) -> tuple[str, str]:
    match action:
        case CreatePod(manifest):
            return "CreatePod", f"Created pod: {_name(manifest)}"
        case CreateService(manifest):
            return "CreateService", f"Created service: {_name(manifest)}"
        case DeletePod(name):
            return "DeletePod", f"Deleted pod: {name}"
        case DeleteService(name):
            return "DeleteService", f"Deleted service: {name}"
        case DeleteJob():
            # The operator uses this reason for the deletion of a job, too.
            return "DeletePod", f"Deleted job: {_name(seen.job)}"
        case _:
            assert_never(action)


def _name(manifest: Manifest) -> str:
    return text(section(manifest, "metadata"), "name")
