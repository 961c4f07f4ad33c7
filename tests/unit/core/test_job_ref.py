"""Tests for the job reference that Flyte stores between two calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.core import job_ref
from backend_plugin.core.dialects.table import DEFAULT, DIALECTS
from backend_plugin.core.job import JobRef
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
