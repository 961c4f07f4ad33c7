"""One pass of the controller while it is under way: what it sees, and what it has decided so far.

Lives here: what every stage of a pass needs. Does not: any stage.
"""

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

# The operator's own number for a training container that does not say how it ended.
UNKNOWN_EXIT: Final = 0xBEEF
_RETRYABLE: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A pass under way; only its lists and its status change."""

    seen: Seen
    job: Job
    deviations: Deviations
    status: Status
    pods: Sequence[Manifest]
    """The job's own."""
    services: Sequence[Manifest]
    service_names: frozenset[str]
    """Of those that are not deleted already."""
    deletions: set[DeletePod | DeleteService] = field(default_factory=set)
    """Those among the actions."""
    actions: list[Action] = field(default_factory=list)
    recreated: dict[str, Recreation] = field(default_factory=dict)
    events: list[Manifest] = field(default_factory=list)

    def tell(self, kind: str, reason: str, message: str) -> None:
        """Say something of the job."""
        self.events.append(events.event(self.seen, kind, reason, message))

    def delete_pod(self, pod: Manifest) -> bool:
        """Have a pod deleted; whether that is news to it."""
        return not is_terminating(pod) and self._delete(DeletePod(name(pod)))

    def delete_service(self, wanted: str) -> None:
        """Have a service deleted, if there is one of that name."""
        if wanted in self.service_names:
            self._delete(DeleteService(wanted))

    def _delete(self, action: DeletePod | DeleteService) -> bool:
        if action in self.deletions:
            return False
        self.deletions.add(action)
        self.actions.append(action)
        return True

    def pods_of(self, role: Role) -> list[Manifest]:
        """Those labelled as that role's."""
        return _of_role(self.pods, role)

    def services_of(self, role: Role) -> list[Manifest]:
        """Those labelled as that role's."""
        return _of_role(self.services, role)

    def is_left_behind(self, pod: Manifest) -> bool:
        """Whether a suspension ended this pod, and the job has been resumed since."""
        if not self.deviations.suspension_is_no_failure or not is_terminating(pod):
            return False
        resumed = any(
            each.get("type") == SUSPENDED and each.get("status") == "False" for each in self.status.conditions
        )
        created, began = moment(_metadata(pod), "creationTimestamp"), self.status.moment("startTime")
        return resumed and created is not None and began is not None and created < began


def name(manifest: Manifest) -> str:
    """Of any object."""
    return text(_metadata(manifest), "name")


def phase(pod: Manifest) -> str:
    """``Pending``, ``Running``, ``Succeeded``, ``Failed``, ``Unknown``; of a new pod nothing."""
    return text(section(pod, "status"), "phase")


def is_terminating(manifest: Manifest) -> bool:
    """Whether it is deleted already, and not yet gone."""
    return bool(_metadata(manifest).get("deletionTimestamp"))


def is_active(pod: Manifest) -> bool:
    """Whether a pod may still come to something."""
    return phase(pod) not in ("Succeeded", "Failed") and not is_terminating(pod)


def index(manifest: Manifest) -> int | None:
    """Which replica it is; None where its label is no number."""
    said = texts(_metadata(manifest), "labels").get(objects.REPLICA_INDEX, "")
    return int(said) if said.isascii() and said.isdigit() else None


def exit_codes(pod: Manifest) -> list[int]:
    """Of the training container, if it has ended."""
    ended = [
        section(each, "state", "terminated")
        for each in entries(section(pod, "status"), "containerStatuses")
        if each.get("name") == CONTAINER
    ]
    return [number(each, "exitCode") or 0 for each in ended if each]


def is_retryable(pod: Manifest) -> bool:
    """Whether the policy `ExitCode` starts a failed pod again."""
    return (exit_codes(pod) or [UNKNOWN_EXIT])[-1] >= _RETRYABLE


def restarts(pod: Manifest) -> int:
    """How often its containers were started again in place."""
    status = section(pod, "status")
    containers = [*entries(status, "initContainerStatuses"), *entries(status, "containerStatuses")]
    return sum(number(each, "restartCount") or 0 for each in containers)


def of_job(manifests: Sequence[Manifest], job: Job) -> list[Manifest]:
    """Those with the job's labels."""
    wanted = objects.labels_of_job(job).items()
    return [each for each in manifests if wanted <= texts(_metadata(each), "labels").items()]


def is_controlled_by(manifest: Manifest, job: Job) -> bool:
    """Whether it belongs to this job, not to an earlier one of its name."""
    owners = entries(_metadata(manifest), "ownerReferences")
    return any(owner.get("controller") is True and owner.get("uid") == job.uid for owner in owners)


def _of_role(manifests: Sequence[Manifest], role: Role) -> list[Manifest]:
    return [
        each for each in manifests if texts(_metadata(each), "labels").get(objects.REPLICA_TYPE) == role.label
    ]


def _metadata(manifest: Manifest) -> Manifest:
    return section(manifest, "metadata")
