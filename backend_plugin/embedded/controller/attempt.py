"""The state of one pass of the controller: its input and its decisions. All stages share it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from backend_plugin.core.reading import entries, moment, number, section, text, texts
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.controller import events, objects
from backend_plugin.embedded.controller.deviations import Deviations
from backend_plugin.embedded.controller.job import CONTAINER, Job, Role
from backend_plugin.embedded.controller.status import SUSPENDED, Status
from backend_plugin.embedded.controller.values import Action, DeletePod, DeleteService, Recreation, Seen

# The operator's value for a training container without an exit code.
UNKNOWN_EXIT: Final = 0xBEEF
_RETRYABLE: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The state of a pass. Only its lists and its status change."""

    seen: Seen
    job: Job
    deviations: Deviations
    status: Status
    pods: Sequence[Manifest]
    """The pods that the job owns."""
    services: Sequence[Manifest]
    service_names: frozenset[str]
    """The names of the services that are not being deleted."""
    deletions: set[DeletePod | DeleteService] = field(default_factory=set)
    """The deletions in `actions`."""
    actions: list[Action] = field(default_factory=list)
    recreated: dict[str, Recreation] = field(default_factory=dict)
    events: list[Manifest] = field(default_factory=list)

    def tell(self, kind: str, reason: str, message: str) -> None:
        """Add an event of the job."""
        self.events.append(events.event(self.seen, kind, reason, message))

    def delete_pod(self, pod: Manifest) -> bool:
        """Delete a pod. Return False if it is already being deleted."""
        return not is_terminating(pod) and self._delete(DeletePod(name(pod)))

    def delete_service(self, wanted: str) -> None:
        """Delete the service with this name, if it exists."""
        if wanted in self.service_names:
            self._delete(DeleteService(wanted))

    def _delete(self, action: DeletePod | DeleteService) -> bool:
        if action in self.deletions:
            return False
        self.deletions.add(action)
        self.actions.append(action)
        return True

    def pods_of(self, role: Role) -> list[Manifest]:
        """Return the pods with the label of that role."""
        return _of_role(self.pods, role)

    def services_of(self, role: Role) -> list[Manifest]:
        """Return the services with the label of that role."""
        return _of_role(self.services, role)

    def is_left_behind(self, pod: Manifest) -> bool:
        """True if a suspension deleted this pod and the job was resumed after that."""
        if not self.deviations.suspension_is_no_failure or not is_terminating(pod):
            return False
        resumed = any(
            each.get("type") == SUSPENDED and each.get("status") == "False" for each in self.status.conditions
        )
        created, began = moment(_metadata(pod), "creationTimestamp"), self.status.moment("startTime")
        return resumed and created is not None and began is not None and created < began


def name(manifest: Manifest) -> str:
    """Return the name of an object."""
    return text(_metadata(manifest), "name")


def phase(pod: Manifest) -> str:
    """Return the phase of a pod. Empty for a new pod."""
    return text(section(pod, "status"), "phase")


def is_terminating(manifest: Manifest) -> bool:
    """True if the object is being deleted."""
    return bool(_metadata(manifest).get("deletionTimestamp"))


def is_active(pod: Manifest) -> bool:
    """True if the pod has not finished and is not being deleted."""
    return phase(pod) not in ("Succeeded", "Failed") and not is_terminating(pod)


def index(manifest: Manifest) -> int | None:
    """Return the replica index from the label, or None if it is not a number."""
    said = texts(_metadata(manifest), "labels").get(objects.REPLICA_INDEX, "")
    return int(said) if said.isascii() and said.isdigit() else None


def exit_codes(pod: Manifest) -> list[int]:
    """Return the exit codes of the training container. Empty if it has not terminated."""
    ended = [
        section(each, "state", "terminated")
        for each in entries(section(pod, "status"), "containerStatuses")
        if each.get("name") == CONTAINER
    ]
    return [number(each, "exitCode") or 0 for each in ended if each]


def is_retryable(pod: Manifest) -> bool:
    """True if the policy `ExitCode` restarts the failed pod."""
    return (exit_codes(pod) or [UNKNOWN_EXIT])[-1] >= _RETRYABLE


def restarts(pod: Manifest) -> int:
    """Return the number of restarts of the containers of a pod."""
    status = section(pod, "status")
    containers = [*entries(status, "initContainerStatuses"), *entries(status, "containerStatuses")]
    return sum(number(each, "restartCount") or 0 for each in containers)


def of_job(manifests: Sequence[Manifest], job: Job) -> list[Manifest]:
    """Return the objects with the labels of the job."""
    wanted = objects.labels_of_job(job).items()
    return [each for each in manifests if wanted <= texts(_metadata(each), "labels").items()]


def is_controlled_by(manifest: Manifest, job: Job) -> bool:
    """True if the object is controlled by this job, and not by an earlier job with the same name."""
    owners = entries(_metadata(manifest), "ownerReferences")
    return any(owner.get("controller") is True and owner.get("uid") == job.uid for owner in owners)


def _of_role(manifests: Sequence[Manifest], role: Role) -> list[Manifest]:
    return [
        each for each in manifests if texts(_metadata(each), "labels").get(objects.REPLICA_TYPE) == role.label
    ]


def _metadata(manifest: Manifest) -> Manifest:
    return section(manifest, "metadata")
