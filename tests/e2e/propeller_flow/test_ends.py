"""Tasks with real processes end with outputs or an error, at timeouts, if aborted, and after server kills."""

import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from propeller.execution import phase_of

from e2e.propeller_flow import tasks
from e2e.propeller_flow.conftest import started, wait_for_outcome
from e2e.propeller_flow.server_process import wait_until
from kfpytorch_idl.v1 import job_ref_pb2

pytestmark = pytest.mark.timeout(300)

RAISED = "ValueError: batch 7 has 31 labels for 32 images"


def test_successful_tasks_return_their_outputs(road, tmp_path):
    """Start all tasks at the same time, because this is faster."""
    alone = tmp_path / "alone"
    alone.mkdir()
    plain = road.start(tasks.types_of_replicas, scale=3.0, names=["a", "b"])
    recovers = road.start(tasks.recovers, folder=str(tmp_path))
    restarts = road.start(tasks.restarts_in_place, folder=str(alone))

    outcome = wait_for_outcome(plain)
    outputs = dict(outcome.outputs)
    weights = outputs.pop("o3")
    assert (outcome.phase, outcome.last.phases[-1]) == ("SUCCEEDED", "SUCCEEDED")
    assert outputs == {"o0": 1.5, "o1": "rank 0", "o2": tasks.Curve("a+b", [3.0, 6.0])}
    assert Path(weights).read_text() == "weights of 2"

    # A second attempt after a recoverable exception.
    outcome = wait_for_outcome(recovers)
    assert (outcome.phase, outcome.outputs) == ("SUCCEEDED", {"o0": 1})
    assert recovers.calls == ["CreateTask 0", "DeleteTask 0", "CreateTask 1"]
    assert "the shard is not there yet" in outcome.attempts[0].message("RETRYABLE_FAILED")
    assert started(tmp_path, recovers) == ["0.0", "1.0"]

    # A second start of the container in the same attempt.
    outcome = wait_for_outcome(restarts)
    assert (outcome.phase, outcome.outputs) == ("SUCCEEDED", {"o0": 1})
    assert (started(alone, restarts), len(outcome.attempts)) == (["0.0", "0.0"], 1)


def test_failed_tasks_report_the_cause(road):
    """Start all tasks at the same time, because this is faster."""
    raises = road.start(tasks.raises_with_outputs)
    raises_unread = road.start(tasks.raises_without_outputs)
    exits = road.start(tasks.exits, code=3)
    takes_too_much = road.start(tasks.takes_too_much)

    # The exception of a user stops the other replicas.
    outcome = wait_for_outcome(raises)
    assert (outcome.phase, outcome.code) == ("FAILED", "TaskFailedWithError")
    assert RAISED in outcome.error
    assert "worker-0 failed" in outcome.error
    assert raises.calls == ["CreateTask 0"]
    assert road.nothing_runs(raises)

    # FlytePropeller reads no error file of a task without outputs.
    outcome = wait_for_outcome(raises_unread)
    assert outcome.phase == "FAILED"
    assert RAISED in outcome.error

    outcome = wait_for_outcome(exits)
    assert outcome.phase == "FAILED"
    assert re.search(r"exit code 3\b|sys\.exit\(3\)", outcome.error), outcome.error
    assert exits.calls == ["CreateTask 0"]

    outcome = wait_for_outcome(takes_too_much)
    assert outcome.code == "RetriesExhausted|TaskFailedWithError"
    assert "OOMKilled" in outcome.error


@pytest.mark.torch
def test_ranks_meet_on_the_loopback_interface_and_restart_together(road, tmp_path):
    replicas = road.start(tasks.replica_sum, value=10)
    restarts = road.start(tasks.elastic_second_wind, folder=str(tmp_path))
    counts = {"world": 2, "listens": 1, "open": 0}
    outcome = wait_for_outcome(replicas)
    assert (outcome.phase, outcome.outputs) == ("SUCCEEDED", {"o0": 21, "o1": counts})
    assert len(outcome.attempts) == 1
    outcome = wait_for_outcome(restarts)
    assert (outcome.phase, outcome.outputs) == ("SUCCEEDED", {"o0": 1, "o1": counts})
    assert (started(tmp_path, restarts), len(outcome.attempts)) == (["0.0", "0.0", "0.1", "0.1"], 1)


def test_new_attempt_after_a_kill_starts_each_replica_once(road, tmp_path):
    execution = road.start(tasks.is_killed_once, folder=str(tmp_path))
    outcome = wait_for_outcome(execution)
    assert (outcome.phase, outcome.outputs) == ("SUCCEEDED", {"o0": 1})
    assert execution.calls == ["CreateTask 0", "DeleteTask 0", "CreateTask 1"]
    # The worker of the second attempt may start after its master ended. No replica starts twice.
    wait_until(lambda: {"0.0", "1.0", "1.1"} <= {*started(tmp_path, execution)})
    starts = started(tmp_path, execution)
    assert starts == sorted({*starts})
    assert road.nothing_runs(execution)


def test_job_reference_of_a_later_release_is_accepted(road, tmp_path):
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


@pytest.mark.torch
def test_processes_of_train_jobs_meet_on_two_nodes(serve):
    road = serve(settings={"kfpytorch": {"dialect": "trainjob"}})
    reduces = road.start(tasks.elastic_sum, value=10)
    numbers = road.start(tasks.jax_numbers)
    outcome = wait_for_outcome(reduces)
    assert (outcome.phase, len(outcome.attempts)) == ("SUCCEEDED", 1)
    assert outcome.outputs == {"o0": 21, "o1": {"world": 2, "listens": 1, "open": 0}}

    # The processes of jax have consecutive numbers.
    outcome = wait_for_outcome(numbers)
    assert (outcome.phase, outcome.outputs) == ("SUCCEEDED", {"o0": ["0", "1", "2", "3"]})


AT_ONCE = 3


def kill_at_random_moments(road, folder, kills):
    """Start tasks while the server is killed repeatedly, also before it listens."""
    dice = random.Random(kills)
    executions = []
    for _ in range(kills):
        alive = [execution for execution in executions if not execution.has_ended]
        for _ in range(AT_ONCE - len(alive)):
            seconds = dice.uniform(0, 2)
            executions.append(road.start(tasks.counts, folder=str(folder), seconds=seconds))
        time.sleep(dice.uniform(0, 2.5))
        road.served.kill()
        road.served.spawn()
    road.served.listen()
    return executions


@pytest.mark.parametrize(
    "durable", [pytest.param(True, marks=pytest.mark.soak, id="durable"), pytest.param(False, id="mortal")]
)
@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_each_task_succeeds_although_the_server_is_killed(serve, tmp_path, kills, *, durable):
    road = serve(*(["--durable"] if durable else []))
    executions = kill_at_random_moments(road, tmp_path, kills)
    for execution in executions:
        outcome = wait_for_outcome(execution, 180)
        assert outcome.phase == "SUCCEEDED", (outcome, road.served.log.read_text()[-4000:])
        assert outcome.outputs == {"o0": outcome.last.number}
        # At most one start per attempt. An attempt may be lost before its pod starts.
        starts = Counter(started(tmp_path, execution))
        assert set(starts.values()) == {1}, starts
        assert f"{outcome.last.number}.0" in starts
        created = [attempt for attempt in outcome.attempts if attempt.meta is not None]
        assert not durable or len(created) == 1, outcome
        assert road.nothing_runs(execution)


STRICT = ("--strict-images", "--images", f"image:1={sys.prefix}")


@pytest.fixture(scope="module")
def patient(serve):
    """Return a server with one known image, on which only an abort ends a waiting task."""
    return serve(*STRICT)


@pytest.fixture(scope="module")
def strict(serve):
    """Return a server with one known image and a short timeout."""
    return serve(*STRICT, settings={"image-pull-backoff-grace-period": "1s"})


def test_unknown_image_fails_the_task_after_the_timeout(strict):
    execution = strict.propeller.prepare(tasks.adds, {"value": 1}, image="nobody/knows:2").start()
    outcome = wait_for_outcome(execution)
    assert outcome.last.phases == ["QUEUED", "INITIALIZING", "FAILED"]
    assert outcome.code == "RetriesExhausted|TaskFailedWithError"
    assert "nobody/knows:2" in outcome.error
    assert "given up after 1 s" in outcome.error
    assert strict.nothing_runs(execution)


def test_task_fails_after_its_deadline(strict, tmp_path):
    execution = strict.start(tasks.runs_too_long, folder=str(tmp_path))
    outcome = wait_for_outcome(execution)
    assert (outcome.phase, len(outcome.attempts)) == ("FAILED", 1)
    assert "RUNNING" in outcome.last.phases
    assert "longer than its deadline" in outcome.error
    assert strict.nothing_runs(execution)


@pytest.mark.parametrize(
    ("phase", "task", "image"),
    [
        ("QUEUED", tasks.waits, "image:1"),
        ("WAITING_FOR_RESOURCES", tasks.asks_for_too_much, "image:1"),
        ("INITIALIZING", tasks.waits, "nobody/knows:2"),
        ("RUNNING", tasks.waits, "image:1"),
    ],
)
def test_abort_takes_effect_immediately_in_each_phase(patient, tmp_path, phase, task, image):
    inputs = {} if task is tasks.asks_for_too_much else {"folder": str(tmp_path)}
    execution = patient.propeller.prepare(task, inputs, image=image).start()
    execution.wait_until(phase)
    execution.abort()
    assert wait_for_outcome(execution).phase == "ABORTED"
    assert execution.calls == ["CreateTask 0", "DeleteTask 0"]
    assert patient.nothing_runs(execution)
