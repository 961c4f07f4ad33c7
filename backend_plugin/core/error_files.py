"""The record of an error file, an ``error*.pb`` in which a worker reports its failure, and its reader."""

from datetime import datetime

import msgspec

from backend_plugin.core.reading import get_mapping, get_text, get_time, parse_subsecond_ns
from backend_plugin.core.values import Manifest
from kfpytorch_common.causes import Cause, Failure


class ErrorFile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The content of an ``error*.pb`` below the output prefix."""

    path: str
    worker: str = ""
    """The name of the pod that wrote the file; empty if its environment did not contain the name."""
    code: str = ""
    message: str = ""
    recoverable: bool = False
    system: bool = False
    """True if Flyte's code in the container failed, not the user's function."""
    at: datetime | None = None
    time_ns: int = 0
    failure: Failure | None = None
    """The failure parsed from `message`; None if not parsed yet. Parsing also truncates `message`."""
    cause: Cause | None = None
    """The cause that the message names; None if it names none or has not been parsed."""


def read_error_file(document: Manifest) -> ErrorFile:
    """Return the record of an ErrorDocument in protobuf JSON, or of its ``error`` alone.

    The document may be below the key ``document``, next to the ``path`` of the file. Never raises: an invalid
    value counts as absent.
    """
    error = get_mapping(document, "document", "error") or get_mapping(document, "error") or document
    at = get_time(error, "timestamp") or get_time(document, "modified")
    return ErrorFile(
        path=get_text(document, "path"),
        worker=get_text(error, "worker"),
        code=get_text(error, "code"),
        message=get_text(error, "message"),
        recoverable=error.get("kind") in ("RECOVERABLE", 1, "1"),
        system=error.get("origin") in ("SYSTEM", 2, "2"),
        at=at,
        time_ns=0
        if at is None
        else int(at.timestamp()) * 10**9 + parse_subsecond_ns(get_text(error, "timestamp")),
    )
