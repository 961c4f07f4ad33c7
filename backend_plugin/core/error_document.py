"""The bytes that a worker wrote when it failed → what `error_files` reads.

By itself, because judging needs no message of Flyte's.
"""

from typing import Final

from flyteidl.core.errors_pb2 import ErrorDocument
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from backend_plugin.core.values import Manifest

# What is kept at each end of a message; nobody is shown more of either.
_KEPT: Final = 100_000


def document(data: bytes) -> Manifest:
    """What a worker wrote, as `error_files.read_error_file` takes it.

    What cannot be read is an error file all the same: the worker did not end well.
    """
    try:
        written = ErrorDocument.FromString(data)
    except DecodeError:
        return unread("cannot be read: it is no ErrorDocument")
    error = written.error
    if len(error.message) > 2 * _KEPT:
        error.message = f"{error.message[:_KEPT]}\n...\n{error.message[-_KEPT:]}"
    try:
        return json_format.MessageToDict(written)
    except (json_format.Error, ValueError, OverflowError):  # A time that no calendar has.
        error.ClearField("timestamp")
        return json_format.MessageToDict(written)


def unread(why: str) -> Manifest:
    """An error file of which nothing else is known."""
    return {"error": {"message": f"an error file that {why}"}}
