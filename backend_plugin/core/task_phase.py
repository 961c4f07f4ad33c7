"""What Flyte should believe of an attempt: its phase, with the reason and the message.

Lives here: the value, and which causes are worth a retry. Does not: which phase a job is in; see `judgement`.
"""

import enum
from collections.abc import Mapping

import msgspec
from typing_extensions import assert_never

from backend_plugin.core import printable, wording
from backend_plugin.core.log_links import LogLink
from backend_plugin.core.values import JsonValue
from kfpytorch_common.causes import Cause


class Phase(enum.Enum):
    """`flyteidl.core.TaskExecution.Phase`, by its names, in the order in which a task passes them."""

    UNDEFINED = "UNDEFINED"
    QUEUED = "QUEUED"
    WAITING_FOR_RESOURCES = "WAITING_FOR_RESOURCES"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    RETRYABLE_FAILED = "RETRYABLE_FAILED"
    FAILED = "FAILED"

    @property
    def is_failure(self) -> bool:
        """Whether the attempt has failed, for good or not."""
        return self in (Phase.FAILED, Phase.RETRYABLE_FAILED)

    @property
    def is_terminal(self) -> bool:
        """Whether the attempt is over."""
        return self is Phase.SUCCEEDED or self.is_failure


class TaskPhase(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What Flyte should believe."""

    phase: Phase
    reason: str
    """One word: ``Unschedulable``, ``OOMKilled``, ``Running``."""
    message: str
    """At most 1,000 characters; the first line says it all."""
    cause: Cause | None = None
    """None unless something is wrong."""
    retry: bool = False
    """Whether another attempt may help; only after a failure."""
    logs: tuple[LogLink, ...] = ()
    info: Mapping[str, JsonValue] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "reason", printable.escape(self.reason))
        msgspec.structs.force_setattr(self, "message", printable.escape(self.message))


def is_worth_a_retry(cause: Cause) -> bool:
    """Whether another attempt may end better: it may, unless somebody has to change something first."""
    match cause:
        case Cause.USER_ERROR | Cause.CONFIG:
            return False
        case (
            Cause.OOM_HOST
            | Cause.OOM_GPU
            | Cause.NCCL_TIMEOUT
            | Cause.HANG
            | Cause.PREEMPTED
            | Cause.NODE_LOST
            | Cause.IMAGE
            | Cause.UNSCHEDULABLE
            | Cause.QUOTA
            | Cause.QUEUE
            | Cause.INFRA
        ):
            return True
        case _:
            assert_never(cause)


def failed(cause: Cause, reason: str, message: str, *, recoverable: bool = False) -> TaskPhase:
    """A failure; whether it is worth a retry follows from its cause, unless the task itself said so."""
    retry = recoverable or is_worth_a_retry(cause)
    return TaskPhase(
        phase=Phase.RETRYABLE_FAILED if retry else Phase.FAILED,
        reason=reason,
        message=wording.shortened(message),
        cause=cause,
        retry=retry,
    )
