"""The input and output types of one reconcile pass of an emulated operator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from backend_plugin.core.values import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnapshot:
    """A job and its objects as stored at one moment."""

    job: Manifest
    pods: Sequence[Manifest]
    services: Sequence[Manifest]
    now: datetime
    prerequisite: Manifest | None = None
    """The object that the job requires, such as its TrainingRuntime; None if there is none."""


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a pod. `admission.admit_pod` may reject it."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Remove the finalizer `objects.TRACKING` of a pod, and delete the pod with its own grace period."""

    name: str


@dataclass(frozen=True, slots=True)
class ReleasePod:
    """Remove the finalizer `objects.TRACKING` of a pod, so that the pod can be removed."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create a service. `admission.admit_service` may reject it."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class DeleteService:
    """Delete a service."""

    name: str


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job, and in the background all objects that it owns."""


Action: TypeAlias = CreatePod | DeletePod | ReleasePod | CreateService | DeleteService | DeleteJob


@dataclass(frozen=True, slots=True)
class Recreation:
    """The recreation of a failed pod."""

    role: str
    restarts: int
    """The number to add to the restarts that count towards `backoffLimit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileResult:
    """The result of one reconcile pass.

    The actions are executed in order. If one is rejected, the operator ends its pass: the remaining actions,
    the events and the status are discarded, and the pass is repeated after a backoff. Only the job that
    `OperatorEmulation.with_recreations` returns is stored. `OperatorEmulation.build_action_event` returns the
    event for an action.
    """

    status: Manifest | None = None
    """The complete new status of the job. None if it does not change."""
    actions: tuple[Action, ...] = ()
    recreated: Mapping[str, Recreation] = field(default_factory=dict)
    """The pods that are deleted to be recreated, by name. `status` counts all of them."""
    events: tuple[Manifest, ...] = ()
    """The bodies of core/v1 Events of the job, as `EventRecorder.record` requires them."""
    wake_at: datetime | None = None
    """The time of the next pass if no object changes before."""
