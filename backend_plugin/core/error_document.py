"""Conversion of a serialized ErrorDocument to the JSON that `error_files` reads.

It is a separate module, so that `error_files` does not import flyteidl.
"""

from typing import Final

from flyteidl.core.errors_pb2 import ErrorDocument
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from backend_plugin.core.values import Manifest

# The number of characters kept at each end of a message; no output shows more.
_KEPT: Final = 100_000


def decode_document(data: bytes) -> Manifest:
    """Return a serialized ErrorDocument as JSON, in the form that `error_files.read_error_file` takes.

    If the bytes cannot be parsed, the message of the result is that they are not an ErrorDocument.
    """
    try:
        written = ErrorDocument.FromString(data)
    except DecodeError:
        return build_unreadable_document("cannot be read: it is not an ErrorDocument")
    error = written.error
    if len(error.message) > 2 * _KEPT:
        error.message = f"{error.message[:_KEPT]}\n...\n{error.message[-_KEPT:]}"
    try:
        return json_format.MessageToDict(written)
    except (json_format.Error, ValueError, OverflowError):  # The timestamp is out of range.
        error.ClearField("timestamp")
        return json_format.MessageToDict(written)


def build_unreadable_document(why: str) -> Manifest:
    """Return an error file with only a message that states why the original file cannot be read."""
    return {"error": {"message": f"an error file that {why}"}}
