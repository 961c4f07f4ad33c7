"""Records of error files, with a reader that never raises. `shell.outcome` downloads the files."""

from datetime import datetime

import msgspec

from backend_plugin.core.reading import decimals_ns, moment, section, text
from backend_plugin.core.values import Manifest
from kfpytorch_common.causes import Cause, Failure


class ErrorFile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The content of an ``error*.pb`` below the output prefix."""

    path: str
    worker: str = ""
    """The name of the pod that wrote it; empty if the pod did not have its name in the environment."""
    code: str = ""
    message: str = ""
    recoverable: bool = False
    system: bool = False
    """True if Flyte's code in the container failed, not the user's function."""
    at: datetime | None = None
    time_ns: int = 0
    failure: Failure | None = None
    """The failure parsed from the message, if already done; the message is then truncated."""
    cause: Cause | None = None
    """The cause that the message names, if already parsed."""


def read_error_file(said: Manifest) -> ErrorFile:
    """Return the record of an ErrorDocument in protobuf JSON, or of its ``error`` alone.

    The document may be below the key ``document``, next to the ``path`` of the file.
    """
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
