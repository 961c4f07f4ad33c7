"""Tests for the comparison of attempts of one Flyte node."""

import pytest
from builders import a_run

from backend_plugin.core import attempts

SECOND = a_run(execution="f1", node_id="n0", attempt=1, output_prefix="s3://b/f1/n0/data/1", namespace="ns")


def test_earlier_attempt_of_the_same_flyte_node_is_recognized():
    first = a_run(attempt=0, output_prefix="s3://b/f1/n0/data/0/", namespace="ns")
    assert attempts.is_earlier(first, SECOND)
    assert not attempts.is_earlier(SECOND, first)


@pytest.mark.parametrize(
    "other",
    [
        {"namespace": "elsewhere"},
        {"output_prefix": "s3://b/f1/n1/data/0"},
        {"project": "other"},
        {"domain": "production"},
        {"execution": "f2"},
        {"node_id": "n1"},
        {"attempt": 1, "output_prefix": "s3://b/f1/n0/data/1"},
    ],
)
def test_attempt_with_another_identity_or_number_is_not_earlier(other):
    fields = {"attempt": 0, "output_prefix": "s3://b/f1/n0/data/0", "namespace": "ns", **other}
    assert not attempts.is_earlier(a_run(**fields), SECOND)


def test_superseded_attempt_error_names_the_newer_attempt():
    late = a_run(execution="f1", node_id="n0", attempt=0)
    message = "attempt 0 of f1/n0 is over: attempt 1 has begun"
    assert str(attempts.build_superseded_error(late, by=SECOND)) == message
