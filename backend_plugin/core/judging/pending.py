"""Classes for the reasons why replicas do not run. `pending_reasons` and scheduler parsers use them."""

import enum
from datetime import datetime

import msgspec

from kfpytorch_common.causes import Cause
from kfpytorch_common.quantity import Quantity


class PendingStage(enum.IntEnum):
    """The stage in which a pod waits; pending reasons of the lowest stage are reported first."""

    HELD = 0
    """A queue or a quota does not admit the pods."""
    UNPLACED = 1
    """No Kubernetes node has been found for the pod."""
    STARTING = 2
    """The pod is bound to a Kubernetes node, but has not run."""
    RESTARTING = 3
    """The pod has run, and will run again."""


class ResourceShortage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A shortage of one resource for a gang of pods, with the quantities that are known."""

    resource: str
    missing: Quantity | None = None
    """The additional quantity with which the gang could start."""
    requested: Quantity | None = None
    """The request of the whole gang; if None, it is computed from an annotation of the job."""
    free: Quantity | None = None
    held: Quantity | None = None
    """The quantity that the gang holds already."""
    counts_own: bool = False
    """True if the scheduler's free quantity includes what pods of the gang already hold."""
    counts_all: bool = False
    """True if the scheduler counts every replica, not only those that must be placed together."""
    last_role: str = ""
    """The last role in role order whose replicas the scheduler counted; empty if it counted all roles."""


class SchedulerMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The parsed message of a scheduler, in a form that does not depend on the scheduler."""

    text: str = ""
    shortages: tuple[ResourceShortage, ...] = ()
    """The resource shortages in the message; users see a sentence about these instead of `text`."""
    queue: str = ""
    cause: Cause | None = None
    """The cause; None if the message only shows that no Kubernetes node has enough room."""
    never: bool = False
    """True if the wait cannot end unless the job, its queue or the cluster is changed."""
    is_unspecific: bool = False
    """True if the message has no details, and an event about the same pod may have them."""
    gang: bool = True
    """True if the message is about the whole gang, False if it is about one pod."""
    follows: bool = False
    """True if the pod waits only because other members of its gang wait."""
    short: tuple[str, ...] = ()
    """The resources that nodes lack for a single pod."""


class PendingReason(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The reason why some replicas, or the job as a whole, do not run yet."""

    stage: PendingStage
    cause: Cause
    reason: str
    """The reason that Kubernetes or the scheduler reports, such as ``Unschedulable``."""
    text: str
    replicas: tuple[str, ...] = ()
    """The replicas that wait, in order; empty if the job waits as a whole."""
    since: datetime | None = None
    shortages: tuple[ResourceShortage, ...] = ()
    queue: str = ""
    ahead: int | None = None
    """The number of jobs that the queue admits before this one."""
    again: str = ""
    """A prefix of the message, which states that the job has run before; empty if it has not run."""
    of_gang: bool = False
    """True if the whole gang waits, although only single replicas reported the reason."""
    follows: bool = False
    """True if this reason is only a consequence of another pending reason, which is reported first."""
    never: bool = False
    short: tuple[str, ...] = ()
    """The resources that nodes lack for a single pod."""
    observed_at: datetime | None = None
    """The time of the scheduler's last report of `shortages`; None if unknown."""
    is_unspecific: bool = False
    """True if an event may contain the precise reason; see `SchedulerMessage`."""
    remedy: str = ""
    """A remedy that replaces the usual one for `cause`; empty if the usual one applies."""
    raw: str = ""
    """The original message, if `text` differs from it."""


class JobWarning(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A warning about a job, in addition to its pending reasons."""

    text: str
    since: datetime | None = None
    """The start of the problem. The warning is reported after a grace period, or immediately if None."""
    event: str = ""
    """The reason of the Kubernetes event that also reports the warning; empty for no event."""
