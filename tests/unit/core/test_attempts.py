"""Tests for the job name, the order and the stored annotation of attempts."""

import re

import pytest
from builders import a_run
from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.core import attempts, names
from backend_plugin.core.job import Deadlines
from backend_plugin.core.task_annotation import ANNOTATION, TaskAnnotation, encode, read

PREFIX = "s3://bucket/metadata/propeller/project-development-f1/n0/data/0"
RUNS = st.builds(
    a_run, execution=st.text(), node_id=st.text(), attempt=st.integers(0, 2**32 - 1), output_prefix=st.text()
)
SECOND = a_run(execution="f1", node_id="n0", attempt=1, output_prefix="s3://b/f1/n0/data/1", namespace="ns")
WORDS = st.text(st.characters(exclude_categories=["Cs"]))
SECONDS = st.none() | st.integers(0, 2**31 - 1)
DEADLINES = st.builds(Deadlines, **dict.fromkeys(Deadlines.__struct_fields__, SECONDS))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "f1-n0-0-4fc1931eedf1"),
        ({"output_prefix": f"{PREFIX}/"}, "f1-n0-0-4fc1931eedf1"),
        ({"attempt": 3, "output_prefix": f"{PREFIX[:-1]}3"}, "f1-n0-3-5830456af662"),
        ({"execution": "UPPER_case.é", "node_id": "n0-dn1"}, "upper-case-n0-dn1-0-4fc1931eedf1"),
        ({"execution": "7days", "node_id": ""}, "f7days-0-4fc1931eedf1"),
        ({"execution": "", "node_id": ""}, "f-0-4fc1931eedf1"),
        ({"execution": "a" * 20, "node_id": "n0-0-dn7-" * 4}, f"{'a' * 20}-n0-0-dn7-n0-0-0-4fc1931eedf1"),
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


@given(WORDS, st.integers(0, 99), DEADLINES, st.dictionaries(WORDS, WORDS))
def test_task_annotation_is_equal_after_encoding_and_decoding(word, attempt, deadlines, config):
    run = a_run(execution=word, task_name=word, attempt=attempt, output_prefix=word, namespace="ns")
    annotations = {ANNOTATION: encode(run, deadlines, config), "kfpytorch.flyte.org/output-prefix": word}
    assert read(annotations, "ns") == TaskAnnotation(run=run, deadlines=deadlines, task_config=config)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"attempt": "x"}', "\ud800"])
def test_unreadable_task_annotation_is_ignored(text):
    assert read({ANNOTATION: text}, "ns") is None


def test_unknown_fields_of_a_later_version_are_ignored():
    origin = read({ANNOTATION: '{"execution": "f1", "colour": "red"}'}, "ns")
    assert origin.run.execution == "f1"
