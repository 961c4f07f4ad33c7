"""Tasks end although the server is killed at random moments, at their timeouts, and when they are aborted."""

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from propeller import Execution

from e2e.propeller_flow import tasks
from e2e.propeller_flow.conftest import Road, started, wait_for_outcome

pytestmark = pytest.mark.timeout(300)

AT_ONCE = 3


def kill_at_random_moments(road: Road, folder: Path, kills: int) -> list[Execution]:
    """Start tasks while the server is killed repeatedly, also before it listens."""
    dice = random.Random(kills)
    executions: list[Execution] = []
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
def patient(serve: Callable[..., Road]) -> Road:
    """Return a server with one known image, on which only an abort ends a waiting task."""
    return serve(*STRICT)


@pytest.fixture(scope="module")
def strict(serve: Callable[..., Road]) -> Road:
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
