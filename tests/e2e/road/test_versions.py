"""Servers of other releases gave out the reference; pods of other packages run the task."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from propeller.record import phase_of
from propeller.wire import delete_request, get_request

from e2e.road import plain_tasks, tasks
from e2e.road.conftest import Road, ended
from kfpytorch_idl.v1 import job_ref_pb2

pytestmark = pytest.mark.timeout(240)

# A field and a varint that no release of ours has: number 200, value 7.
UNKNOWN = b"\xc0\x0c\x07"


def newer(meta: bytes) -> bytes:
    message = job_ref_pb2.JobRef.FromString(meta)
    message.version = 99
    return bytes(message.SerializeToString()) + UNKNOWN


def older(meta: bytes) -> bytes:
    """With what the first release needed to find a job, and nothing else."""
    message = job_ref_pb2.JobRef.FromString(meta)
    for field in ("version", "uid", "deadlines"):
        message.ClearField(field)
    return bytes(message.SerializeToString())


@pytest.mark.parametrize("release", [newer, older])
def test_a_reference_of_another_release_is_understood(
    road: Road, tmp_path: Path, release: Callable[[bytes], bytes]
) -> None:
    execution = road.start(tasks.waits, folder=str(tmp_path))
    attempt = execution.until("RUNNING")
    assert attempt.meta is not None
    meta = release(attempt.meta)
    prefix = execution.asked.output(0).as_uri()

    answer = road.wire.get(get_request(meta, prefix)).result().resource
    road.wire.delete(delete_request(meta))

    assert (phase_of(answer), answer.log_links == attempt.answers[-1].log_links) == ("RUNNING", True)
    assert road.nothing_runs(execution)
    execution.abort()
    assert ended(execution).phase in ("ABORTED", "FAILED")


@pytest.mark.conformance
@pytest.mark.torch
def test_an_image_with_upstreams_plugin_runs_under_our_backend(
    serve: Callable[..., Road], upstream: Path, tmp_path: Path
) -> None:
    """Both environments' packages write and read the same files; `where` says which one ran."""
    road = serve("--images", f"upstream:1={upstream}", "--images", f"image:1={sys.prefix}")
    started = [
        road.propeller.ask(task, {"value": 10}, image="upstream:1").start()
        for task in (plain_tasks.elastic, plain_tasks.replicas)
    ]
    failing = road.propeller.ask(plain_tasks.fails, {}, image="upstream:1").start()
    outcomes = [ended(execution, 120) for execution in started]
    failed = ended(failing, 120)

    assert [outcome.phase for outcome in outcomes] == ["SUCCEEDED", "SUCCEEDED"]
    assert [outcome.outputs["o0"] for outcome in outcomes] == [21, 10]
    assert all(Path(outcome.outputs["o1"]).is_relative_to(upstream) for outcome in outcomes)
    assert failed.phase == "FAILED"
    assert "ValueError: batch 7 has 31 labels" in failed.error
