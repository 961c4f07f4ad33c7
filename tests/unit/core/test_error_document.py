"""Tests for the parser of an ErrorDocument."""

from flyteidl.core.errors_pb2 import ContainerError, ErrorDocument

from backend_plugin.core.error_document import decode_document
from backend_plugin.core.error_files import ErrorFile, read_error_file


def read(error: ContainerError) -> ErrorFile:
    return read_error_file(decode_document(ErrorDocument(error=error).SerializeToString()))


def test_long_message_keeps_its_start_and_its_end():
    message = read(ContainerError(message="a" * 150_000 + "b" * 150_000)).message
    assert (len(message), message[0], message[-1]) == (200_005, "a", "b")


def test_out_of_range_timestamp_is_ignored():
    error = ContainerError(message="m", worker="w")
    error.timestamp.seconds = 2**62
    file = read(error)
    assert (file.message, file.worker, file.at) == ("m", "w", None)


def test_undecodable_document_still_counts_as_an_error_file():
    message = read_error_file(decode_document(b"\xff")).message
    assert message == "an error file that cannot be read: it is not an ErrorDocument"
