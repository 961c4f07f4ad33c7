"""A verdict of our own that is kept on its job: every server says the same of it afterwards.

Lives here: an annotation, written and read. Does not: what is decided; see `judgement`.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from kfpytorch_common.causes import Cause

if TYPE_CHECKING:
    from backend_plugin.core.task_phase import TaskPhase

ANNOTATION: Final = "kfpytorch.flyte.org/verdict"


class KeptVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that no operator knows of: a deadline, a time-out, patience that ended."""

    reason: str
    message: str
    cause: Cause
    retry: bool
    at: datetime


def encode(phase: "TaskPhase", at: datetime) -> str:
    """The annotation that makes a failure last."""
    kept = KeptVerdict(
        reason=phase.reason,
        message=phase.message,
        cause=phase.cause or Cause.INFRA,
        retry=phase.retry,
        at=at,
    )
    return msgspec.json.encode(kept).decode()


def read(annotation: str) -> KeptVerdict | None:
    """What was kept; None where nothing can be read."""
    try:
        return _DECODER.decode(annotation)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


_DECODER: Final = msgspec.json.Decoder(KeptVerdict)
