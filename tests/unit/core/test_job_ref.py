"""Tests for the stored job reference, its signature and the signature of a job."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.core import job_ref, signing
from backend_plugin.core.dialects.table import DEFAULT, DIALECTS
from backend_plugin.core.job import JobRef
from backend_plugin.core.signing import SigningKeys
from kfpytorch_idl.v1 import job_ref_pb2

REFS = st.builds(
    JobRef,
    dialect=st.sampled_from(sorted(DIALECTS)),
    namespace=st.text(),
    name=st.text(),
    output_prefix=st.text(),
    uid=st.none() | st.text(),
    refusal=st.none() | st.text(),
)
REF = JobRef(dialect=DEFAULT.name, namespace="ns", name="f1-n0-0", output_prefix="s3://b/0")
OLD, NEW = b"the key of last year", b"the key of this year"
KEYS = SigningKeys(keys=(NEW, OLD))
UNSIGNED = replace(KEYS, accepts_unsigned=True)
PREFIX = "kfpytorch.flyte.org/output-prefix"
UNSIGNED_DATA, ODD_DATA = job_ref.encode(REF), job_ref.encode(REF) + b"\x4a\x01x"
BEFORE, AFTER = SigningKeys(keys=(OLD,)), SigningKeys(keys=(NEW,))


@given(REFS)
def test_reference_is_equal_after_encoding_and_decoding(ref):
    assert job_ref.decode(job_ref.encode(ref)) == ref


def test_encoded_bytes_of_this_and_later_releases_are_decodable():
    written = bytes.fromhex("080110011a026e73220766312d6e302d30320873333a2f2f622f303a00")
    assert job_ref.decode(written) == REF
    assert len(job_ref.encode(REF)) < 50
    # Field 99 and version 7 do not exist in this release.
    later = job_ref.encode(REF) + bytes.fromhex("9a06026869")
    assert job_ref.decode(later + b"\x08\x07") == REF
    assert job_ref_pb2.JobRef.FromString(later).SerializeToString().endswith(bytes.fromhex("9a06026869"))


@pytest.mark.parametrize("data", [b"", b"\xff", b"no reference", b"\x10\x09"])
def test_bytes_without_a_job_reference_are_rejected(data):
    with pytest.raises(job_ref.UnreadableReference):
        job_ref.decode(data)


def job(**annotations: str):
    return {"metadata": {"namespace": "ns", "name": "j", "annotations": {PREFIX: "s3://b/0", **annotations}}}


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
    assert not is_authentic(job())
    assert is_authentic(job(), UNSIGNED)
    signed = signing.sign_job(job(), KEYS)
    assert is_authentic(signed)
    annotations = signed["metadata"]["annotations"]
    for changed in (
        {"namespace": "other"},
        {"name": "other"},
        {"annotations": {**annotations, PREFIX: "s3://other"}},
        {"annotations": {**annotations, "kfpytorch.flyte.org/task": "{}"}},
        {"annotations": {**annotations, signing.ANNOTATION: "no signature"}},
        {"annotations": {**annotations, signing.ANNOTATION: "00"}},
    ):
        assert not is_authentic({"metadata": {**signed["metadata"], **changed}}, UNSIGNED)
    assert is_authentic({"metadata": {**signed["metadata"], "annotations": {**annotations, "note": "x"}}})


def test_signature_depends_on_the_boundaries_of_the_parts():
    assert KEYS.sign(b"a", b"bc") != KEYS.sign(b"a", b"b", b"c") != KEYS.sign(b"ab", b"c")
