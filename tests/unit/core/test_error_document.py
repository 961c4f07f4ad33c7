"""Tests for the parser of an ErrorDocument and for the summary of an error file."""

from flyteidl.core.errors_pb2 import ContainerError, ErrorDocument

from backend_plugin.core.error_document import decode_document
from backend_plugin.core.error_files import ErrorFile, read_error_file
from backend_plugin.core.judging import error_parser
from kfpytorch_common.causes import Cause


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


def test_error_file_summary_keeps_its_failure_and_its_cause():
    message = "✗ train failed on rank 3 (worker-2) after 2.0 s (oom-gpu)\n  RuntimeError: no\n" + "x" * 50_000
    file = ErrorFile(path="error.pb", message=message, worker="j-worker-2")
    summary = error_parser.summarize_file(file)
    assert len(summary.message) == 1_000
    assert error_parser.parse_error_file(summary) == error_parser.parse_error_file(file)
    assert summary.cause is Cause.OOM_GPU
