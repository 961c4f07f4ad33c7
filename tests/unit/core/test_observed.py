"""Tests for the readers of observed objects, of their fields and of error files."""

from datetime import datetime, timedelta, timezone

import pytest
from cluster import BEGAN, RUNNING, SUCCEEDED, job
from cluster_pods import build_ended_pod, running
from flyteidl.core.errors_pb2 import ContainerError, ErrorDocument

from backend_plugin.core import reading
from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.error_document import decode_document
from backend_plugin.core.error_files import ErrorFile, read_error_file
from backend_plugin.core.judging import error_parser
from backend_plugin.core.judging.last_transition import get_last_transition_time
from backend_plugin.core.object_readers import read_observed, read_pod
from kfpytorch_common.causes import Cause

UTC = timezone.utc
TIMES = {
    "2026-01-02T03:04:05Z": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "2026-01-02t03:04:05.123456789z": datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC),
    "2026-01-02T03:04:05.5+02:00": datetime(2026, 1, 2, 1, 4, 5, 500000, tzinfo=UTC),
    "2026-01-02 03:04:05-0130": datetime(2026, 1, 2, 4, 34, 5, tzinfo=UTC),
    "2026-01-02T03:04:05": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "2026-02-31T03:04:05Z": None,
    "0001-01-01T00:00:00+05:00": None,
    "yesterday": None,
    "": None,
}
INF = float("inf")
NUMBERS = [(3, 3), (3.0, 3), ("3", 3), (True, None), (None, None), ("x", None), (INF - INF, None)]


@pytest.mark.parametrize(("text", "meant"), TIMES.items())
def test_timestamps_are_parsed(text, meant):
    assert reading.parse_time(text) == meant
    assert reading.get_time({"at": text}, "at") == meant


def test_nanoseconds_of_a_timestamp_are_parsed():
    assert reading.parse_subsecond_ns("2026-01-02T03:04:05.000000007Z") == 7
    assert reading.parse_subsecond_ns("2026-01-02T03:04:05Z") == reading.parse_subsecond_ns("x") == 0


def test_timestamps_of_all_time_zones_sort_as_text():
    times = ["2026-01-02T01:04:05+01:00", "2026-01-02T00:04:05.1Z", "2026-01-02T02:04:05.100000007+02:00"]
    assert sorted([times[2], times[0], times[1]], key=reading.format_sortable_time) == times
    assert reading.format_sortable_time("x") == "x"


@pytest.mark.parametrize(("value", "meant"), [*NUMBERS, (2**70, 2**31 - 1)])
def test_integers_are_read_from_any_value(value, meant):
    assert reading.get_int({"n": value}, "n") == meant


def test_text_map_keeps_only_text_values():
    assert reading.get_text_map({"labels": {"a": "b", "c": 1}}, "labels") == {"a": "b"}
    assert reading.get_text_map({"labels": 1}, "labels") == {}


def test_empty_or_malformed_objects_are_read_as_absent():
    observed = read_observed({"job": {}, "pods": 1, "events": None, "outputs": "yes"})
    assert (observed.job, observed.pods, observed.events, observed.outputs) == (None, (), (), None)


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        (read_job(job(RUNNING, SUCCEEDED)), 100),
        (read_pod(running("worker-0", since=9)), 9),
        (read_pod(build_ended_pod("worker-0", 1, finished=80)), 80),
        (read_pod({"metadata": {"name": "p"}}), None),
    ],
)
def test_last_transition_time_of_jobs_and_pods_is_read(found, seconds):
    expected = None if seconds is None else BEGAN + timedelta(seconds=seconds)
    assert get_last_transition_time(found) == expected


def read_error(error: ContainerError) -> ErrorFile:
    return read_error_file(decode_document(ErrorDocument(error=error).SerializeToString()))


def test_long_message_keeps_its_start_and_its_end():
    message = read_error(ContainerError(message="a" * 150_000 + "b" * 150_000)).message
    assert (len(message), message[0], message[-1]) == (200_005, "a", "b")


def test_out_of_range_timestamp_is_ignored():
    error = ContainerError(message="m", worker="w")
    error.timestamp.seconds = 2**62
    file = read_error(error)
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
