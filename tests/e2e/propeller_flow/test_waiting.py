"""Tasks that wait end at their timeouts, or immediately if they are aborted."""

import sys
from collections.abc import Callable

import pytest

from e2e.propeller_flow import tasks
from e2e.propeller_flow.conftest import Road, wait_for_outcome

pytestmark = pytest.mark.timeout(180)

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
