"""The interface of an operator: the functions by which the embedded cluster runs one kind of job."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import Key
from backend_plugin.embedded.operators.actions import Action, JobSnapshot, ReconcileResult

CountRecreations: TypeAlias = Callable[[JobSnapshot, ReconcileResult, Sequence[Action]], Manifest]


def keep_job(snapshot: JobSnapshot, _: ReconcileResult, __: Sequence[Action]) -> Manifest:
    """Return the job unchanged, for an operator that does not count recreated pods."""
    return snapshot.job


@dataclass(frozen=True, slots=True, kw_only=True)
class PrerequisiteEmulation:
    """The emulated admission of the objects that jobs require. Its functions are pure."""

    admit: Callable[[Manifest], Manifest]
    """Return a new prerequisite as it is stored. Raises `RequestRejected` if it is invalid."""
    find: Callable[[Manifest], Key]
    """Return the key of the prerequisite of a job."""
    require: Callable[[Manifest, Manifest | None], None]
    """Raise `RequestRejected` if a webhook rejects a job because of its prerequisite (None: missing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorEmulation:
    """An emulated operator. Its functions are pure."""

    dialect: Dialect
    """The kind of its jobs, as `core.dialects` describes it."""
    admit: Callable[[Manifest], Manifest]
    """Return a new job as it is stored, without the metadata that the store adds.

    Raises `RequestRejected` if the API server or a webhook would reject the job.
    """
    admit_update: Callable[[Manifest, Manifest], Manifest]
    """Return a changed job as it is stored. Takes the stored and the changed job; raises like `admit`."""
    reconcile: Callable[[JobSnapshot], ReconcileResult]
    """Return the actions, events and status that follow from the stored objects."""
    build_action_event: Callable[[JobSnapshot, Action, str | None], Manifest | None]
    """Return the event that the operator reports about an action; None if it reports none.

    The third parameter is the message of the rejection; None if the action was executed.
    """
    with_recreations: CountRecreations = keep_job
    """Return the job after an interrupted pass. The status counts the pods deleted to be recreated.

    The third parameter contains the executed actions.
    """
    prerequisite: PrerequisiteEmulation | None = None
    """The admission of prerequisites; None if its jobs have none."""
    host_suffix: str = ""
    """A regular expression for the part of a pod's host name after the name of its job.

    These hosts are in a subdomain that has the name of the job. If empty, the host names are the pod names.
    """
    gate: str = ""
    """The name of the init container with which a pod waits for its leader. Empty if no pod waits.

    The container is not executed: the shim of the pod waits until the leader is ready or has succeeded.
    """
    leader: str = ""
    """The role of the leader, in lower case; empty if no pod waits for a leader."""
