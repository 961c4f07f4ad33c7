"""Attempts after the first one."""

from pathlib import Path

import pytest
from propeller.execution import phase_of

from e2e.propeller_flow import tasks
from e2e.propeller_flow.conftest import Road, started, wait_for_outcome
from e2e.propeller_flow.server_process import wait_until
from kfpytorch_idl.v1 import job_ref_pb2

pytestmark = pytest.mark.timeout(240)


def test_new_attempt_after_a_kill_starts_each_replica_once(road: Road, tmp_path: Path) -> None:
    execution = road.start(tasks.is_killed_once, folder=str(tmp_path))
    outcome = wait_for_outcome(execution)

    assert (outcome.phase, outcome.outputs) == ("SUCCEEDED", {"o0": 1})
    assert execution.calls == ["CreateTask 0", "DeleteTask 0", "CreateTask 1"]
    # The worker of the second attempt may start after its master ended. No replica starts twice.
    wait_until(lambda: {"0.0", "1.0", "1.1"} <= {*started(tmp_path, execution)})
    starts = started(tmp_path, execution)
    assert starts == sorted({*starts})
    assert road.nothing_runs(execution)


def test_job_reference_of_a_later_release_is_accepted(road: Road, tmp_path: Path) -> None:
    execution = road.start(tasks.waits, folder=str(tmp_path))
    meta = execution.wait_until("RUNNING").meta
    assert meta is not None
    later = job_ref_pb2.JobRef.FromString(meta)
    later.ClearField("signature")
    later.version = 99
    # The field with number 200 does not exist in this release.
    written = later.SerializeToString() + b"\xc0\x0c\x07"
    prefix = execution.node.get_output_directory(0).as_uri()

    assert phase_of(road.wire.get(written, prefix)) == "RUNNING"
    road.wire.delete(written)
    assert road.nothing_runs(execution)
    execution.abort()
    assert wait_for_outcome(execution).phase in ("ABORTED", "FAILED")
