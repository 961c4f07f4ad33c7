"""Replicas without an image and tasks that run too long end at their timeouts."""

import sys
from collections.abc import Callable

import pytest

from e2e.propeller_flow import tasks
from e2e.propeller_flow.conftest import Road, wait_for_outcome

pytestmark = pytest.mark.timeout(180)

IMPATIENT = {"image-pull-backoff-grace-period": "1s"}


@pytest.fixture(scope="module")
def strict(serve: Callable[..., Road]) -> Road:
    """Return a server with one known image and short timeouts."""
    return serve("--strict-images", "--images", f"image:1={sys.prefix}", settings=IMPATIENT)


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
