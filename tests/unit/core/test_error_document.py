"""Tests for the parser of an ErrorDocument."""

from flyteidl.core.errors_pb2 import ContainerError, ErrorDocument

from backend_plugin.core.error_document import decode_document
from backend_plugin.core.error_files import read_error_file


def read(error: ContainerError) -> str:
    return read_error_file(decode_document(ErrorDocument(error=error).SerializeToString())).message


def test_a_message_without_end_keeps_both_its_ends() -> None:
    said = read(ContainerError(message="a" * 150_000 + "b" * 150_000))
    assert (len(said), said[0], said[-1]) == (200_005, "a", "b")


def test_a_time_that_no_calendar_has_is_no_time() -> None:
    error = ContainerError(message="m", worker="w")
    error.timestamp.seconds = 2**62
    file = read_error_file(decode_document(ErrorDocument(error=error).SerializeToString()))
    assert (file.message, file.worker, file.at) == ("m", "w", None)


def test_what_is_no_document_is_an_error_file_all_the_same() -> None:
    assert (
        read_error_file(decode_document(b"\xff")).message
        == "an error file that cannot be read: it is not an ErrorDocument"
    )
