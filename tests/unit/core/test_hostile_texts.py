"""Tests for the limits on long texts; `tests/unit/test_patterns.py` tests the regular expressions."""

import pytest
from cluster import BEGAN, job, unplaced

from backend_plugin.core.error_files import ErrorFile
from backend_plugin.core.judging import error_parser
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.object_readers import read_observed
from backend_plugin.core.pipeline import judge
from backend_plugin.core.settings import engine, platform_parsers, value_parsers
from kfpytorch_common.causes import Cause


def test_number_with_too_many_digits_is_rejected():
    with pytest.raises(engine.InvalidSettingValue):
        value_parsers.duration("1" * 20_000)
    with pytest.raises(engine.InvalidSettingValue, match="as an exit code"):
        platform_parsers.causes_by_exit_code({"9" * 5_000: "system-error"})


def test_very_long_message_is_parsed_from_its_start():
    message = "0/3 nodes are available: 3 Insufficient cpu." + " x" * 500_000
    observed = read_observed({"job": job(started=None), "pods": [unplaced("master-0", message)]})
    assert [len(pod.scheduled.message) for pod in observed.pods if pod.scheduled] == [4_000]
    assert "3 lack cpu" in judge(observed, JudgingContext(), BEGAN).message


def test_error_file_summary_keeps_its_failure_and_its_cause():
    message = "✗ train failed on rank 3 (worker-2) after 2.0 s (oom-gpu)\n  RuntimeError: no\n" + "x" * 50_000
    file = ErrorFile(path="error.pb", message=message, worker="j-worker-2")
    summary = error_parser.summarize_file(file)
    assert len(summary.message) == 1_000
    assert error_parser.parse_error_file(summary) == error_parser.parse_error_file(file)
    assert summary.cause is Cause.OOM_GPU
