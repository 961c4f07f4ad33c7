"""The Flyte phase of a task attempt (`Verdict`), and the rule for which failures are retryable."""

import enum
from collections.abc import Mapping

import msgspec
from typing_extensions import assert_never

from backend_plugin.core import printable
from backend_plugin.core.judging import messages
from backend_plugin.core.judging.log_links import LogLink
from backend_plugin.core.values import JsonValue
from kfpytorch_common.causes import Cause


class Phase(enum.Enum):
    """The phases of a Flyte task, as `flyteidl.core.TaskExecution.Phase` names them, in their usual order."""

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
        """True if the attempt has failed, whether the failure is retryable or not."""
        return self in (Phase.FAILED, Phase.RETRYABLE_FAILED)

    @property
    def is_terminal(self) -> bool:
        """True if the attempt has ended."""
        return self is Phase.SUCCEEDED or self.is_failure


class Verdict(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The Flyte phase of an attempt at one moment, with the reason, message and cause."""

    phase: Phase
    reason: str
    """A CamelCase word for programs, such as ``Unschedulable``, ``OOMKilled`` or ``Running``."""
    message: str
    """A text of at most 1,000 characters with a complete first line."""
    cause: Cause | None = None
    """The cause of a failure or of a wait; None if there is no problem."""
    logs: tuple[LogLink, ...] = ()
    info: Mapping[str, JsonValue] = msgspec.field(default_factory=dict)
    """The value of `custom_info` in the response to Flyte; `messages.build_custom_info` builds it."""

    @property
    def retry(self) -> bool:
        """True for a retryable failure."""
        return self.phase is Phase.RETRYABLE_FAILED

    def __post_init__(self) -> None:
        if not (self.reason.isprintable() and self.message.isprintable()):
            msgspec.structs.force_setattr(self, "reason", printable.escape(self.reason))
            msgspec.structs.force_setattr(self, "message", printable.escape(self.message))


def is_retryable(cause: Cause) -> bool:
    """True if another attempt may succeed without a change of the task or its configuration."""
    match cause:
        case Cause.USER_ERROR | Cause.INVALID_CONFIG:
            return False
        case (
            Cause.OOM_HOST
            | Cause.OOM_GPU
            | Cause.NCCL_TIMEOUT
            | Cause.HANG
            | Cause.PREEMPTED
            | Cause.NODE_LOST
            | Cause.IMAGE_PULL
            | Cause.UNSCHEDULABLE
            | Cause.QUOTA_EXCEEDED
            | Cause.QUEUE
            | Cause.SYSTEM_ERROR
        ):
            return True
        case _:
            assert_never(cause)


def build_failure(cause: Cause, reason: str, *lines: str, recoverable: bool = False) -> Verdict:
    """Return the verdict on a failed attempt; it is retryable if `cause` is, or if `recoverable` is true.

    The message of the verdict consists of the non-empty `lines`.
    """
    return Verdict(
        phase=Phase.RETRYABLE_FAILED if recoverable or is_retryable(cause) else Phase.FAILED,
        reason=reason,
        message=messages.shorten_message(messages.join_lines(*lines)),
        cause=cause,
    )
