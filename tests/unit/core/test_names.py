"""Tests for the names of jobs."""

import re

import pytest
from builders import a_run
from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.core import names

PREFIX = "s3://bucket/metadata/propeller/project-development-f1/n0/data/0"
RUNS = st.builds(
    a_run, execution=st.text(), node_id=st.text(), attempt=st.integers(0, 2**32 - 1), output_prefix=st.text()
)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "f1-n0-0-4fc1931eedf1"),
        ({"output_prefix": f"{PREFIX}/"}, "f1-n0-0-4fc1931eedf1"),
        ({"attempt": 3, "output_prefix": f"{PREFIX[:-1]}3"}, "f1-n0-3-5830456af662"),
        ({"execution": "UPPER_case.é", "node_id": "n0-dn1"}, "upper-case-n0-dn1-0-4fc1931eedf1"),
        ({"execution": "7days", "node_id": ""}, "f7days-0-4fc1931eedf1"),
        ({"execution": "", "node_id": ""}, "f-0-4fc1931eedf1"),
        (
            {"execution": "a" * 20, "node_id": "n0-0-dn7-" * 4},
            "aaaaaaaaaaaaaaaaaaaa-n0-0-dn7-n0-0-0-4fc1931eedf1",
        ),
    ],
)
def test_job_name_is_the_same_in_every_release(fields, name):
    assert names.job_name(a_run(**fields)) == name


@given(RUNS)
def test_job_name_is_valid_in_kubernetes(run):
    name = names.job_name(run)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert len(f"{name}-worker-99999") <= 63


@given(RUNS, RUNS)
def test_two_attempts_have_different_names(one, other):
    is_same = one.output_prefix.rstrip("/") == other.output_prefix.rstrip("/")
    assert is_same or names.job_name(one) != names.job_name(other)
    identities = [names.compute_identity(each.output_prefix) for each in (one, other)]
    assert (identities[0] == identities[1]) == is_same
