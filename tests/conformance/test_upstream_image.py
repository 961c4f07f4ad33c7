"""Tasks in an image with upstream's plugin, run by our backend."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e.propeller_flow import conftest as roads
from e2e.propeller_flow import plain_tasks
from e2e.propeller_flow.conftest import Road, wait_for_outcome

pytestmark = [pytest.mark.conformance, pytest.mark.torch, pytest.mark.timeout(900)]

serve = roads.serve


def test_image_with_the_upstream_plugin_runs_with_our_backend(
    serve: Callable[..., Road], upstream: Path
) -> None:
    """Run tasks from both images. Output `o1` is the path of the package that ran."""
    road = serve("--images", f"upstream:1={upstream}", "--images", f"image:1={sys.prefix}")
    started = [
        road.propeller.prepare(task, {"value": 10}, image="upstream:1").start()
        for task in (plain_tasks.elastic, plain_tasks.replicas)
    ]
    failing = road.propeller.prepare(plain_tasks.fails, {"labels": 31}, image="upstream:1").start()
    outcomes = [wait_for_outcome(execution, 120) for execution in started]
    failed = wait_for_outcome(failing, 120)

    assert [outcome.phase for outcome in outcomes] == ["SUCCEEDED", "SUCCEEDED"]
    assert [outcome.outputs["o0"] for outcome in outcomes] == [21, 10]
    assert all(Path(outcome.outputs["o1"]).is_relative_to(upstream) for outcome in outcomes)
    assert failed.phase == "FAILED"
    assert "ValueError: batch 7 has 31 labels" in failed.error
