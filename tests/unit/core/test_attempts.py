"""Tests for the names, the order, the stored annotations, the references and the signatures of attempts."""

import re
from dataclasses import replace

import pytest
from builders import a_run
from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.core import job_ref, names, signing
from backend_plugin.core.dialects.table import DEFAULT, DIALECTS
from backend_plugin.core.job import Deadlines, JobRef
from backend_plugin.core.signing import SigningKeys
from backend_plugin.core.task_annotation import ANNOTATION, TaskAnnotation, encode, read
from kfpytorch_idl.v1 import job_ref_pb2

PREFIX = "s3://bucket/metadata/propeller/project-development-f1/n0/data/0"
RUNS = st.builds(
    a_run, execution=st.text(), node_id=st.text(), attempt=st.integers(0, 2**32 - 1), output_prefix=st.text()
)
SECOND = a_run(execution="f1", node_id="n0", attempt=1, output_prefix="s3://b/f1/n0/data/1", namespace="ns")
WORDS = st.text(st.characters(exclude_categories=["Cs"]))
SECONDS = st.none() | st.integers(0, 2**31 - 1)
DEADLINES = st.builds(Deadlines, **dict.fromkeys(Deadlines.__struct_fields__, SECONDS))
JOB = {"metadata": {"namespace": "ns", "name": "j", "annotations": {names.OUTPUT_PREFIX: "s3://b/0"}}}


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


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({}, True),
        ({"output_prefix": "s3://b/f1/n0/data/0/"}, True),
        ({"namespace": "elsewhere"}, False),
        ({"output_prefix": "s3://b/f1/n1/data/0"}, False),
        ({"project": "other"}, False),
        ({"domain": "production"}, False),
        ({"execution": "f2"}, False),
        ({"node_id": "n1"}, False),
    ],
)
def test_attempts_of_one_flyte_node_share_its_identity(change, is_same):
    fields = {"attempt": 0, "output_prefix": "s3://b/f1/n0/data/0", "namespace": "ns", **change}
    assert (a_run(**fields).flyte_node == SECOND.flyte_node) is is_same


@given(WORDS, st.integers(0, 99), DEADLINES, st.dictionaries(WORDS, WORDS))
def test_task_annotation_is_equal_after_encoding_and_decoding(word, attempt, deadlines, config):
    run = a_run(execution=word, task_name=word, attempt=attempt, output_prefix=word, namespace="ns")
    annotations = {ANNOTATION: encode(run, deadlines, config), "kfpytorch.flyte.org/output-prefix": word}
    assert read(annotations, "ns") == TaskAnnotation(run=run, deadlines=deadlines, task_config=config)


def test_unreadable_task_annotation_and_unknown_fields_of_it_are_ignored():
    for text in ("", "{", "[]", '{"attempt": "x"}', "\ud800"):
        assert read({ANNOTATION: text}, "ns") is None
    assert read({ANNOTATION: '{"execution": "f1", "colour": "red"}'}, "ns").run.execution == "f1"


TEXTS = dict.fromkeys(["namespace", "name", "output_prefix"], st.text())
OPTIONAL = dict.fromkeys(["uid", "refusal"], st.none() | st.text())
REF = JobRef(dialect=DEFAULT.name, namespace="ns", name="f1-n0-0", output_prefix="s3://b/0")
OLD, NEW = b"the key of last year", b"the key of this year"
KEYS = SigningKeys(keys=(NEW, OLD))
UNSIGNED = replace(KEYS, accepts_unsigned=True)
UNSIGNED_DATA, ODD_DATA = job_ref.encode(REF), job_ref.encode(REF) + b"\x4a\x01x"
BEFORE, AFTER = SigningKeys(keys=(OLD,)), SigningKeys(keys=(NEW,))


@given(st.builds(JobRef, dialect=st.sampled_from(sorted(DIALECTS)), **TEXTS, **OPTIONAL))
def test_reference_is_equal_after_encoding_and_decoding(ref):
    assert job_ref.decode(job_ref.encode(ref)) == ref


def test_encoded_bytes_of_this_and_later_releases_are_decodable():
    assert job_ref.decode(bytes.fromhex("080110011a026e73220766312d6e302d30320873333a2f2f622f303a00")) == REF
    assert len(job_ref.encode(REF)) < 50
    # Field 99 and version 7 do not exist in this release.
    later = job_ref.encode(REF) + bytes.fromhex("9a06026869")
    assert job_ref.decode(later + b"\x08\x07") == REF
    assert job_ref_pb2.JobRef.FromString(later).SerializeToString().endswith(bytes.fromhex("9a06026869"))


@pytest.mark.parametrize("data", [b"", b"\xff", b"no reference", b"\x10\x09"])
def test_bytes_without_a_job_reference_are_rejected(data):
    with pytest.raises(job_ref.UnreadableReference):
        job_ref.decode(data)


def is_authentic(job, keys: SigningKeys = KEYS) -> bool:
    metadata = job["metadata"]
    return signing.is_job_authentic(metadata["namespace"], metadata["name"], metadata["annotations"], keys)


def test_signed_reference_is_decoded_by_every_release():
    data = job_ref.encode(REF, KEYS)
    assert job_ref.decode(data) == REF
    assert len(job_ref_pb2.JobRef.FromString(data).signature) == signing.SIGNATURE_BYTES
    assert job_ref.is_authentic(data, KEYS)


@pytest.mark.parametrize("field", ["namespace", "name", "output_prefix", "uid", "refusal"])
def test_changed_field_invalidates_the_signature_of_a_reference(field):
    signature = job_ref.encode(REF, KEYS)[-34:]
    changed = job_ref.encode(replace(REF, **{field: "other"})) + signature
    assert not job_ref.is_authentic(changed, UNSIGNED)


@pytest.mark.parametrize(
    ("data", "keys", "authentic"),
    [
        (UNSIGNED_DATA, KEYS, False),
        (b"\x10\x01", KEYS, False),
        (ODD_DATA, KEYS, False),
        (UNSIGNED_DATA, UNSIGNED, True),
        (ODD_DATA, UNSIGNED, False),
        (b"\xff", UNSIGNED, False),
        # Keys can be rotated.
        (job_ref.encode(REF, BEFORE), KEYS, True),
        (job_ref.encode(REF, KEYS), BEFORE, False),
        (job_ref.encode(REF, BEFORE), AFTER, False),
    ],
)
def test_reference_is_authentic_if_a_key_signed_it_or_none_is_needed(data, keys, authentic):
    assert job_ref.is_authentic(data, keys) is authentic


def test_job_signature_covers_name_prefix_and_task():
    assert not is_authentic(JOB)
    assert is_authentic(JOB, UNSIGNED)
    signed = signing.sign_job(JOB, KEYS)
    assert is_authentic(signed)
    annotations = signed["metadata"]["annotations"]
    for changed in (
        {"namespace": "other"},
        {"name": "other"},
        {"annotations": {**annotations, names.OUTPUT_PREFIX: "s3://other"}},
        {"annotations": {**annotations, "kfpytorch.flyte.org/task": "{}"}},
        {"annotations": {**annotations, signing.ANNOTATION: "no signature"}},
        {"annotations": {**annotations, signing.ANNOTATION: "00"}},
    ):
        assert not is_authentic({"metadata": {**signed["metadata"], **changed}}, UNSIGNED)
    assert is_authentic({"metadata": {**signed["metadata"], "annotations": {**annotations, "note": "x"}}})


def test_signature_depends_on_the_boundaries_of_the_parts():
    assert KEYS.sign(b"a", b"bc") != KEYS.sign(b"a", b"b", b"c") != KEYS.sign(b"ab", b"c")
