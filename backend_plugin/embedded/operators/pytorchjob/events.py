"""Builds the bodies of the core/v1 Events of a job. The recorder adds the job, names, times and counts."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import get_name, is_active
from backend_plugin.embedded.operators.base import (
    Action,
    CreatePod,
    CreateService,
    DeleteJob,
    JobSnapshot,
)
from backend_plugin.embedded.operators.pytorchjob.objects import OPERATOR

NORMAL: Final = "Normal"
WARNING: Final = "Warning"


def build_event(kind: str, reason: str, message: str) -> Manifest:
    """Return an event that the operator reports about its job; `kind` is ``Normal`` or ``Warning``."""
    return {
        "reason": reason,
        "message": message,
        "type": kind,
        "source": {"component": OPERATOR},
        "reportingComponent": OPERATOR,
    }


def build_action_event(snapshot: JobSnapshot, action: Action, refusal: str | None = None) -> Manifest:
    """Return the event for an executed action, or for a rejected action with the message `refusal`."""
    # The operator reports the deletion of a job with the event reason for the deletion of a pod.
    reason = "DeletePod" if isinstance(action, DeleteJob) else type(action).__name__
    kind = (
        "job"
        if isinstance(action, DeleteJob)
        else reason.removeprefix("Create").removeprefix("Delete").lower()
    )
    if isinstance(action, CreatePod | CreateService):
        done, doing, name = "Created", "creating", get_name(action.manifest)
    else:
        done, doing, name = "Deleted", "deleting", getattr(action, "name", get_name(snapshot.job))
    if refusal is None:
        return build_event(NORMAL, f"Successful{reason}", f"{done} {kind}: {name}")
    return build_event(WARNING, f"Failed{reason}", f"Error {doing}: {refusal}")


def iter_faulty_pod_events(pod: Manifest) -> Iterator[Manifest]:
    """Yield events for the failed and the waiting containers of an active pod."""
    status = get_mapping(pod, "status")
    containers = get_mappings(status, "containerStatuses") or get_mappings(status, "initContainerStatuses")
    for container in containers if is_active(pod) else ():
        yield from _iter_container_events(get_name(pod), container)


def _iter_container_events(pod: str, container: Manifest) -> Iterator[Manifest]:
    prefix = f"Error pod {pod} container {get_text(container, 'name')}"
    terminated = get_mapping(container, "state", "terminated")
    code = get_int(terminated, "exitCode")
    if code:
        message = f"{prefix} exitCode: {code} terminated message: {get_text(terminated, 'message')}"
        yield build_event(WARNING, get_text(terminated, "reason"), message)
    waiting = get_mapping(container, "state", "waiting")
    if get_text(waiting, "message"):
        message = f"{prefix} waiting message: {get_text(waiting, 'message')}"
        yield build_event(WARNING, get_text(waiting, "reason"), message)
