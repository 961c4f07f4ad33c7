"""Builds the bodies of the core/v1 Events of a job. The store adds names and counts."""

from collections.abc import Iterator
from typing import Final

from typing_extensions import assert_never

from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import format_time
from backend_plugin.embedded.operators.actions import (
    Action,
    CreatePod,
    CreateService,
    DeleteJob,
    DeletePod,
    DeleteService,
    JobSnapshot,
    ReleasePod,
)
from backend_plugin.embedded.operators.pytorchjob.job_spec import DIALECT
from backend_plugin.embedded.operators.pytorchjob.objects import OPERATOR

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
_UNWANTED: Final = ("Succeeded", "Failed")


def build_event(snapshot: JobSnapshot, kind: str, reason: str, message: str) -> Manifest:
    """Return an event of the job."""
    metadata = get_mapping(snapshot.job, "metadata")
    namespace, at = get_text(metadata, "namespace"), format_time(snapshot.now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace},
        "involvedObject": {
            "apiVersion": DIALECT.resource.api_version,
            "kind": DIALECT.name,
            "name": get_text(metadata, "name"),
            "namespace": namespace,
            "uid": get_text(metadata, "uid"),
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


def build_action_event(snapshot: JobSnapshot, action: Action, refusal: str | None = None) -> Manifest:
    """Return the event for an executed action, or for a rejected one if `refusal` has its message."""
    what, done = _format_action(snapshot, action)
    if refusal is None:
        return build_event(snapshot, NORMAL, f"Successful{what}", done)
    doing = "creating" if what.startswith("Create") else "deleting"
    return build_event(snapshot, WARNING, f"Failed{what}", f"Error {doing}: {refusal}")


def iter_faulty_pod_events(snapshot: JobSnapshot, pod: Manifest) -> Iterator[Manifest]:
    """Yield events for a faulty active pod, from its containers, init containers or last condition."""
    status = get_mapping(pod, "status")
    metadata = get_mapping(pod, "metadata")
    if get_text(status, "phase") in _UNWANTED or metadata.get("deletionTimestamp"):
        return
    name = get_text(metadata, "name")
    containers = get_mappings(status, "containerStatuses") or get_mappings(status, "initContainerStatuses")
    for container in containers:
        yield from _iter_container_events(snapshot, name, container)
    conditions = sorted(
        get_mappings(status, "conditions"),
        key=lambda each: get_text(each, "lastTransitionTime"),
        reverse=True,
    )
    if not containers and conditions and conditions[0].get("status") != "True":
        message = f"Error pod {name} condition message: {get_text(conditions[0], 'message')}"
        yield build_event(snapshot, WARNING, get_text(conditions[0], "reason"), message)


def _iter_container_events(snapshot: JobSnapshot, pod: str, container: Manifest) -> Iterator[Manifest]:
    prefix = f"Error pod {pod} container {get_text(container, 'name')}"
    terminated = get_mapping(container, "state", "terminated")
    code = get_int(terminated, "exitCode")
    if code:
        message = f"{prefix} exitCode: {code} terminated message: {get_text(terminated, 'message')}"
        yield build_event(snapshot, WARNING, get_text(terminated, "reason"), message)
    waiting = get_mapping(container, "state", "waiting")
    if get_text(waiting, "message"):
        message = f"{prefix} waiting message: {get_text(waiting, 'message')}"
        yield build_event(snapshot, WARNING, get_text(waiting, "reason"), message)


def _format_action(snapshot: JobSnapshot, action: Action) -> tuple[str, str]:
    match action:
        case CreatePod(manifest):
            return "CreatePod", f"Created pod: {_get_name(manifest)}"
        case CreateService(manifest):
            return "CreateService", f"Created service: {_get_name(manifest)}"
        case DeletePod(name):
            return "DeletePod", f"Deleted pod: {name}"
        case DeleteService(name):
            return "DeleteService", f"Deleted service: {name}"
        case DeleteJob() | ReleasePod():
            # The operator uses this reason for the deletion of a job, too.
            return "DeletePod", f"Deleted job: {_get_name(snapshot.job)}"
        case _:
            assert_never(action)


def _get_name(manifest: Manifest) -> str:
    return get_text(manifest, "metadata", "name")
