"""Flyte's own plugin and ours on one cluster: the messages for the same tasks, their delay and their cost.

Both propellers are the same program. Pods are simulated, but failing tasks run their real programs.
`KFPYTORCH_TABLE` names a file for the tables of docs/explanation/comparison-with-the-go-plugin.md.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import pytest
from go_comparison import table
from go_comparison.platforms import Pair, Sides
from go_comparison.scenarios import SCENARIOS
from rig.audit import Call, calls
from rig.control_plane import BACKEND
from rig.propeller import PropellerOptions, RealPropeller

NAMESPACE = "side-by-side"
SETTINGS = {"image-pull-backoff-grace-period": "10s"}  # The default grace period is minutes long.
A_POLL = 15  # Propeller polls every five seconds; the rest is a reserve for a busy machine.
ENDS = {
    "it ends well": ["0 SUCCEEDED"],
    "all replicas raise an error": ["0 FAILED"],
    "the first attempt raises what is recoverable": ["0 FAILED", "1 SUCCEEDED"],
    "one is killed for its memory": ["0 FAILED"],
    "one is preempted": ["0 FAILED"],
    "no node has as many GPUs": [],
    "a user aborts it": [],
}
"""The phases on which both plugins agree."""
ENDS_HERE = {
    "one raises, the others wait for it": ["0 FAILED"],
    "the image of one cannot be pulled": ["0 FAILED"],
}
"""The phases that Flyte's own plugin never reports."""
SAID = {
    "all replicas raise an error": ("-0 failed: ValueError: batch 7 has 31 labels", "the same way"),
    "one raises, the others wait for it": ("worker-0 failed: ValueError: batch 7", "the same way"),
    "one is killed for its memory": ("worker-0", "OOMKilled", "request more"),
    "one is preempted": ("worker-0", "preempted", "save checkpoints and set retries"),
    "the image of one cannot be pulled": ("worker-0", "image:1", "check the image's name"),
    "no node has as many GPUs": ("-0 waiting for a node", "4 lack nvidia.com/gpu", "request less"),
}
"""Parts of the message: the replica, the error and the remedy."""

pytestmark = pytest.mark.timeout(400)


@dataclass(frozen=True, kw_only=True)
class Compared:
    pairs: Mapping[str, Pair]  # The executions by scenario.
    calls: Sequence[Call]  # The API requests during the scenarios.


@pytest.fixture(scope="module")
def compared(plane, served, tmp_path_factory):
    with (
        RealPropeller(plane, tmp_path_factory.mktemp("theirs"), PropellerOptions(domain="theirs")) as theirs,
        RealPropeller(
            plane, tmp_path_factory.mktemp("ours"), PropellerOptions(domain="ours", connector=served.endpoint)
        ) as ours,
    ):
        before = len(calls(plane))
        sides = Sides(theirs=theirs, ours=ours)
        with ThreadPoolExecutor(len(SCENARIOS)) as pool:
            done = pool.map(lambda act: act(sides), SCENARIOS.values())
            pairs = dict(zip(SCENARIOS, done, strict=True))
        heard = calls(plane)[before:]
        for run in (run for pair in pairs.values() for run in pair):
            run.finish(heard)
    if file := os.environ.get("KFPYTORCH_TABLE"):
        Path(file).write_text(table.page(pairs, heard))
    return Compared(pairs=pairs, calls=heard)


@pytest.mark.parametrize("what", ENDS)
def test_both_plugins_report_the_expected_final_phases(compared, what):
    for each in compared.pairs[what]:
        assert ends(each) == ENDS[what]


@pytest.mark.parametrize("what", ENDS_HERE)
def test_task_that_hangs_with_the_stock_plugin_fails_with_ours(compared, what):
    theirs, ours = compared.pairs[what]
    assert theirs.took is None, theirs.shown
    assert ends(ours) == ENDS_HERE[what]


@pytest.mark.parametrize("what", SAID)
def test_message_contains_replica_error_and_remedy_unlike_the_stock_plugin(compared, what):
    theirs, ours = (each.message for each in compared.pairs[what])
    assert [each for each in SAID[what] if each not in ours] == [], ours
    assert [each for each in SAID[what] if each not in theirs], theirs


@pytest.mark.parametrize("what", ENDS)
def test_final_phase_follows_the_stock_plugin_within_one_poll(compared, what):
    theirs, ours = (each.took for each in compared.pairs[what])
    assert (theirs is None) is (ours is None)
    assert ours is None or theirs is None or ours < theirs + A_POLL


def test_server_reads_only_required_objects_from_the_api_server(compared):
    """Our server reads only the owner of a new job, an existing job, a job to delete and a failed job.

    It reads a failed job once to store the verdict, which counts the failure only once for several servers.
    It relists only pods, once for each failed job whose pods do not contain the reason.
    """
    for what, (_, ours) in compared.pairs.items():
        deleted = any(each.verb == "delete" and each.resource == "pytorchjobs" for each in ours.calls)
        creates = creations(ours)
        there = creates.count(HTTPStatus.CONFLICT)
        failed = ours.attempts if what != "it ends well" else 0
        # The operator may change a job between the read and the patch with the verdict.
        conflicts = sum(
            (each.user, each.verb, each.status) == (BACKEND, "patch", HTTPStatus.CONFLICT)
            for each in ours.calls
        )
        reads = sum(each.user == BACKEND and each.is_read for each in ours.calls)
        assert reads <= len(creates) + there + deleted + failed + conflicts, what
    again = [each for each in compared.calls if each.user == BACKEND and each.is_read and not each.name]
    listed = Counter(each.resource for each in again if each.resource in {"pytorchjobs", "pods"})
    failed = sum(ours.attempts for what, (_, ours) in compared.pairs.items() if what != "it ends well")
    assert listed.keys() <= {"pods"}
    assert listed["pods"] <= failed


def test_job_is_created_once_per_attempt(compared):
    """Propeller may call CreateTask twice if it could not store the first result."""
    for what, (_, ours) in compared.pairs.items():
        creates = creations(ours)
        assert creates.count(HTTPStatus.CREATED) == ours.attempts, what
        assert set(creates) <= {HTTPStatus.CREATED, HTTPStatus.CONFLICT}, what


def test_terminal_phase_leaves_no_running_pod(compared):
    running = {what: [each.running for each in pair] for what, pair in compared.pairs.items()}
    assert {ours for _, ours in running.values()} == {0}
    # Flyte's own plugin leaves a pod running, which makes this test meaningful.
    assert running["one is killed for its memory"] == [1, 0]


def creations(run):
    """Return the status codes of the create requests for its jobs."""
    return [each.status for each in run.calls if each.verb == "create" and each.resource == "pytorchjobs"]


def ends(run):
    return [f"{each.attempt} {each.phase}" for each in run.shown if each.phase in {"SUCCEEDED", "FAILED"}]
