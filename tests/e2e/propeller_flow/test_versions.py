"""Job references from servers of other releases."""

from collections.abc import Callable
from pathlib import Path

import pytest
from propeller.record import phase_of
from propeller.wire import delete_request, get_request

from e2e.propeller_flow import tasks
from e2e.propeller_flow.conftest import Road, wait_for_outcome
from kfpytorch_idl.v1 import job_ref_pb2

pytestmark = pytest.mark.timeout(240)

# An unknown field: number 200, varint 7.
UNKNOWN = b"\xc0\x0c\x07"


def newer(meta: bytes) -> bytes:
    message = job_ref_pb2.JobRef.FromString(meta)
    message.ClearField("signature")
    message.version = 99
    return bytes(message.SerializeToString()) + UNKNOWN


def older(meta: bytes) -> bytes:
    """Return a reference with only the fields that the first release needed to find a job."""
    message = job_ref_pb2.JobRef.FromString(meta)
    for field in ("version", "uid", "signature"):
        message.ClearField(field)
    return bytes(message.SerializeToString())


@pytest.mark.parametrize("release", [newer, pytest.param(older, marks=pytest.mark.soak)])
def test_job_reference_of_another_release_is_accepted(
    road: Road, tmp_path: Path, release: Callable[[bytes], bytes]
) -> None:
    execution = road.start(tasks.waits, folder=str(tmp_path))
    attempt = execution.wait_until("RUNNING")
    assert attempt.meta is not None
    meta = release(attempt.meta)
    prefix = execution.asked.output(0).as_uri()

    answer = road.wire.get(get_request(meta, prefix)).result().resource
    road.wire.delete(delete_request(meta))

    assert (phase_of(answer), answer.log_links == attempt.answers[-1].log_links) == ("RUNNING", True)
    assert road.nothing_runs(execution)
    execution.abort()
    assert wait_for_outcome(execution).phase in ("ABORTED", "FAILED")
