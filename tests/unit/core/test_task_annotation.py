"""Tests for the annotation that stores the task of a job."""

import pytest
from builders import a_run
from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.core.job import Deadlines
from backend_plugin.core.task_annotation import ANNOTATION, TaskAnnotation, encode, read

WORDS = st.text(st.characters(exclude_categories=["Cs"]))
SECONDS = st.none() | st.integers(0, 2**31 - 1)
DEADLINES = st.builds(
    Deadlines,
    active_seconds=SECONDS,
    queue_seconds=SECONDS,
    pending_seconds=SECONDS,
    no_status_seconds=SECONDS,
)


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
