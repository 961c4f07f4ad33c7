"""What a worker left below the output prefix when it failed, as a record.

Lives here: an ErrorDocument, read; reading never fails. Does not: where it lies; see `shell.outcome`.
"""

from datetime import datetime

import msgspec

from backend_plugin.core.reading import decimals_ns, moment, section, text
from backend_plugin.core.values import Manifest
from kfpytorch_common.causes import Cause, Failure


class ErrorFile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An ``error*.pb`` below the output prefix."""

    path: str
    worker: str = ""
    """The name of the pod that wrote it; empty when nobody told the pod its name."""
    code: str = ""
    message: str = ""
    recoverable: bool = False
    system: bool = False
    """Flyte's own part in the container failed, not the user's function."""
    at: datetime | None = None
    time_ns: int = 0
    failure: Failure | None = None
    """The failure that the message contains, if it was read before; then the message is cut."""
    cause: Cause | None = None
    """The same of the cause that the message names."""


def read_error_file(said: Manifest) -> ErrorFile:
    """An ErrorDocument in protobuf JSON, with its ``path``; below ``document``, bare, or its error alone."""
    error = section(said, "document", "error") or section(said, "error") or said
    at = moment(error, "timestamp") or moment(said, "modified")
    return ErrorFile(
        path=text(said, "path"),
        worker=text(error, "worker"),
        code=text(error, "code"),
        message=text(error, "message"),
        recoverable=error.get("kind") in ("RECOVERABLE", 1, "1"),
        system=error.get("origin") in ("SYSTEM", 2, "2"),
        at=at,
        time_ns=0 if at is None else int(at.timestamp()) * 10**9 + decimals_ns(text(error, "timestamp")),
    )
