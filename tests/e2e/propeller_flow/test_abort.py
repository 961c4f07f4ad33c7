"""An abort takes effect immediately in every phase, and no process remains."""

import sys
from collections.abc import Callable

import pytest

from e2e.propeller_flow import tasks
from e2e.propeller_flow.conftest import Road, wait_for_outcome

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
        ("RUNNING", tasks.waits, "image:1"),
    ],
)
def test_abort_takes_effect_immediately_in_each_phase(road, tmp_path, phase, task, image):
    inputs = {} if task is tasks.asks_for_too_much else {"folder": str(tmp_path)}
    execution = road.propeller.prepare(task, inputs, image=image).start()
    execution.wait_until(phase)
    execution.abort()

    assert wait_for_outcome(execution).phase == "ABORTED"
    assert execution.calls == ["CreateTask 0", "DeleteTask 0"]
    assert road.nothing_runs(execution)
