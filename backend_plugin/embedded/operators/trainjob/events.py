"""Builds the bodies of the core/v1 Events about a TrainJob, its JobSet and its Job."""

from typing import Final

from typing_extensions import assert_never

from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import get_name
from backend_plugin.embedded.operators.base import (
    Action,
    CreatePod,
    CreateService,
    DeleteJob,
    DeletePod,
    DeleteService,
    JobSnapshot,
    ReleasePod,
)
from backend_plugin.embedded.operators.trainjob.job_spec import DIALECT, ROLE

JOB: Final = "Job"
JOBSET: Final = "JobSet"
_VERSIONS: Final = {
    JOB: "batch/v1",
    JOBSET: "jobset.x-k8s.io/v1alpha2",
    DIALECT.name: DIALECT.resource.api_version,
}
_COMPONENTS: Final = {JOB: "job-controller", JOBSET: "jobset", DIALECT.name: "trainjob-controller"}


def build_event(
    snapshot: JobSnapshot, about: str, reason: str, message: str, *, warning: bool = False
) -> Manifest:
    """Return an event of the TrainJob, its JobSet or its Job; `about` is the kind of the object."""
    metadata, name = get_mapping(snapshot.job, "metadata"), get_name(snapshot.job)
    return {
        "involvedObject": {
            "apiVersion": _VERSIONS[about],
            "kind": about,
            "namespace": get_text(metadata, "namespace"),
            "name": f"{name}-{ROLE}-0" if about == JOB else name,
            "uid": get_text(metadata, "uid"),
        },
        "reason": reason,
        "message": message,
        "type": "Warning" if warning else "Normal",
        "source": {"component": _COMPONENTS[about]},
        "reportingComponent": _COMPONENTS[about],
    }


def build_action_event(snapshot: JobSnapshot, action: Action, refusal: str | None = None) -> Manifest | None:
    """Return the event for an executed action, or for a rejected one if `refusal` has its message.

    None if no event is reported for the action.
    """
    match action:
        case CreatePod(manifest) if refusal is None:
            return build_event(snapshot, JOB, "SuccessfulCreate", f"Created pod: {get_name(manifest)}")
        case CreatePod():
            return build_event(snapshot, JOB, "FailedCreate", f"Error creating: {refusal}", warning=True)
        case DeletePod(name):
            return build_event(snapshot, JOB, "SuccessfulDelete", f"Deleted pod: {name}")
        case CreateService() if refusal is not None:
            return build_event(snapshot, JOBSET, "HeadlessServiceCreationFailed", refusal, warning=True)
        case CreateService() | DeleteService() | DeleteJob() | ReleasePod():
            return None
        case _:
            assert_never(action)
