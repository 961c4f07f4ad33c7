"""An abort takes effect immediately in every phase, and no process remains."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.propeller_flow import tasks
from e2e.propeller_flow.conftest import Road, started, wait_for_outcome

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def road(serve: Callable[..., Road]) -> Road:
    """Return a server on which only the abort ends a task."""
    return serve("--strict-images", "--images", f"image:1={sys.prefix}")


@pytest.mark.parametrize(
    ("phase", "task", "image"),
    [
        ("QUEUED", tasks.waits, "image:1"),
        ("WAITING_FOR_RESOURCES", tasks.asks_for_too_much, "image:1"),
        ("INITIALIZING", tasks.waits, "nobody/knows:2"),
    ],
)
def test_abort_takes_effect_immediately_before_the_task_runs(
    road: Road, tmp_path: Path, phase: str, task: Any, image: str
) -> None:
    inputs = {} if task is tasks.asks_for_too_much else {"folder": str(tmp_path)}
    execution = road.propeller.prepare(task, inputs, image=image).start()
    attempt = execution.wait_until(phase)
    execution.abort()
    outcome = wait_for_outcome(execution)

    assert (outcome.phase, attempt.deleted) == ("ABORTED", True)
    assert execution.calls == ["CreateTask 0", "DeleteTask 0"]
    assert road.nothing_runs(execution)


def test_delete_after_success_keeps_the_outputs(road: Road) -> None:
    execution = road.start(tasks.adds, value=1)
    outcome = wait_for_outcome(execution)
    execution.delete(0)
    execution.delete(0)

    assert (outcome.phase, outcome.outputs) == ("SUCCEEDED", {"o0": 2}), outcome
    assert (execution.node.get_output_directory(0) / "outputs.pb").exists()


def test_running_attempt_is_deleted_after_a_repeated_create(road: Road, tmp_path: Path) -> None:
    """Send CreateTask twice, as FlytePropeller may do, before the abort sends one DeleteTask."""
    execution = road.start(tasks.waits, folder=str(tmp_path))
    execution.wait_until("RUNNING")
    again = road.wire.create(execution.node.build_request(0))
    execution.abort()

    assert again == execution.attempts[0].meta
    assert wait_for_outcome(execution).phase == "ABORTED"
    assert execution.calls == ["CreateTask 0", "DeleteTask 0"]
    assert road.nothing_runs(execution)
    assert len(started(tmp_path, execution)) <= 2
