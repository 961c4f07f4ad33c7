"""Upstream's own tests, run against our package, and tasks in an image with upstream's plugin."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from e2e.propeller_flow import conftest as roads
from e2e.propeller_flow import plain_tasks
from e2e.propeller_flow.conftest import wait_for_outcome

pytestmark = [pytest.mark.conformance, pytest.mark.torch, pytest.mark.timeout(900)]

COLLECTED = 35
# flytekit reads a torch.nn.Module with torch.load, which by default accepts only plain weights since
# torch 2.6. These two tests also fail with upstream's package.
NEED_PICKLED_MODULES = {"test_end_to_end[spawn]", "test_end_to_end[fork]"}


def failures(tests, *selected, **environment):
    # A separate configuration, so that ours (warnings are errors) does not apply.
    (tests / "pytest.ini").write_text("[pytest]\n")
    flags = ("-q", "-p", "no:cacheprovider", "--junit-xml=report.xml")
    command = [sys.executable, "-m", "pytest", *flags, *selected]
    subprocess.run(command, cwd=tests, env={**os.environ, **environment}, check=False, capture_output=True)
    cases = list(ET.parse(tests / "report.xml").iter("testcase"))
    assert len(cases) == (COLLECTED if not selected else len(NEED_PICKLED_MODULES))
    return {str(case.get("name")) for case in cases if len(case) and case[0].tag != "system-out"}


def test_upstream_suite_passes_except_for_pickled_modules(upstream_tests):
    assert failures(upstream_tests) <= NEED_PICKLED_MODULES


def test_end_to_end_tests_pass_when_torch_loads_pickled_modules(upstream_tests):
    permitted = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    assert failures(upstream_tests, "-k", "test_end_to_end", **permitted) == set()


serve = roads.serve


def test_image_with_the_upstream_plugin_runs_with_our_backend(serve, upstream):
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
