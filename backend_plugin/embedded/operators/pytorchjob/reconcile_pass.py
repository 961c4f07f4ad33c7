"""The state of one reconcile pass: its input and its decisions. All stages of the pass share it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from backend_plugin.core.reading import get_int, get_mapping, get_mappings
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import get_label, get_name, is_terminating
from backend_plugin.embedded.operators.actions import (
    Action,
    DeletePod,
    DeleteService,
    JobSnapshot,
    Recreation,
)
from backend_plugin.embedded.operators.pytorchjob import events, objects
from backend_plugin.embedded.operators.pytorchjob.job_spec import CONTAINER, JobSpec, OperatorReplicaSpec
from backend_plugin.embedded.operators.pytorchjob.status import StatusBuilder

# The operator's value for a training container without an exit code.
_UNKNOWN_EXIT: Final = 0xBEEF
_RETRYABLE: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilePass:
    """The state of a pass. The stages change `status`, and add to `actions`, `recreated` and `events`."""

    snapshot: JobSnapshot
    job: JobSpec
    upstream: bool
    """True to behave as training-operator 1.9.3 also where the emulation differs; see `reconcile`."""
    status: StatusBuilder
    pods: Sequence[Manifest]
    """The pods that the job owns."""
    services: Sequence[Manifest]
    service_names: frozenset[str]
    deletions: set[DeletePod | DeleteService] = field(default_factory=set)
    """The deletions in `actions`."""
    actions: list[Action] = field(default_factory=list)
    recreated: dict[str, Recreation] = field(default_factory=dict)
    events: list[Manifest] = field(default_factory=list)

    def record_event(self, kind: str, reason: str, message: str) -> None:
        """Add an event of the job."""
        self.events.append(events.build_event(kind, reason, message))

    def delete_pod(self, pod: Manifest) -> bool:
        """Add the deletion of a pod to the actions. Return False if it is already being deleted."""
        return not is_terminating(pod) and self._add_deletion(DeletePod(get_name(pod)))

    def delete_service(self, name: str) -> None:
        """Add the deletion of the service with this name to the actions, if the service exists."""
        if name in self.service_names:
            self._add_deletion(DeleteService(name))

    def _add_deletion(self, action: DeletePod | DeleteService) -> bool:
        if action in self.deletions:
            return False
        self.deletions.add(action)
        self.actions.append(action)
        return True


def select_role_objects(manifests: Sequence[Manifest], role: OperatorReplicaSpec) -> list[Manifest]:
    """Return the pods or services with the label of that role."""
    return [each for each in manifests if get_label(each, objects.LABELS.role) == role.label]


def list_exit_codes(pod: Manifest) -> list[int]:
    """Return the exit codes of the training container. Empty if it has not terminated."""
    ended = [
        get_mapping(each, "state", "terminated")
        for each in get_mappings(pod, "status", "containerStatuses")
        if each.get("name") == CONTAINER
    ]
    return [get_int(each, "exitCode") or 0 for each in ended if each]


def is_retryable(pod: Manifest) -> bool:
    """True if the policy `ExitCode` restarts the failed pod."""
    return (list_exit_codes(pod) or [_UNKNOWN_EXIT])[-1] >= _RETRYABLE
