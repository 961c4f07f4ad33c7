"""What goes into one pass of the controller and what comes out.

Lives here: records. Does not: any thought.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from backend_plugin.core.values import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A job and what there is of it, as stored, at one moment."""

    job: Manifest
    pods: Sequence[Manifest]
    services: Sequence[Manifest]
    now: datetime


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Make a pod; `admission.admit_pod` may refuse it."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod, with its own grace period."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateService:
    """Make a service; `admission.admit_service` may refuse it."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class DeleteService:
    """Delete a service."""

    name: str


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job itself and, in the background, all that it owns."""


Action: TypeAlias = CreatePod | DeletePod | CreateService | DeleteService | DeleteJob


@dataclass(frozen=True, slots=True)
class Recreation:
    """A pod that has failed and is made anew."""

    role: str
    restarts: int
    """How much it counts towards `backoffLimit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one pass wants.

    The actions are carried out in their order. If one is refused, those behind it, the events and the status
    are void, as the operator ends its pass there, but for what `counted` says; it is called again after a
    while. `events.of_action` words what an action's doing, or its refusal, says of the job.
    """

    status: Manifest | None = None
    """The job's whole status; None: as it is."""
    actions: tuple[Action, ...] = ()
    recreated: Mapping[str, Recreation] = field(default_factory=dict)
    """Those of the deleted pods that are made anew, by name; the status counts all of them."""
    events: tuple[Manifest, ...] = ()
    """Bodies of core/v1 Events of the job, without names."""
    wake_at: datetime | None = None
    """Look again then, though nothing has changed."""
