"""Tests of the deadline of a TrainJob, whose start is recorded because a restart replaces all its pods."""

from datetime import timedelta

import pytest
from train_job_objects import BEGAN, at, build_condition, build_job, build_pod, build_running, observe

from backend_plugin.core.job import Deadlines
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.verdict import Phase
from backend_plugin.core.pipeline import build_start_patch, judge
from backend_plugin.core.settings.judging import JudgingSettings

ANNOTATION = "kfpytorch.flyte.org/run-start"
RULES = JudgingContext(deadlines=Deadlines(active_seconds=100))
RESUMED = {"type": "Suspended", "status": "False", "reason": "Resumed", "lastTransitionTime": at(60)}


def build_started_job(start: float | None, *conditions):
    """Build a job with a recorded start."""
    job = build_job(*conditions, max_restarts=2)
    if start is not None:
        job["metadata"]["annotations"][ANNOTATION] = at(start)
    return job


def list_nodes(since: float, attempt: int):
    return [build_running(index, since, created=since - 1, attempt=attempt) for index in (0, 1)]


@pytest.mark.parametrize(
    ("job", "since", "now", "is_over"),
    [
        (build_started_job(5), 80, 104, False),
        (build_started_job(5), 80, 106, True),
        (build_started_job(None), 80, 106, False),
        (build_started_job(None), 80, 181, True),
        # Time in a queue is not run time, so a suspension starts the run again.
        (build_started_job(5, RESUMED), 80, 179, False),
        (build_started_job(62, RESUMED), 80, 163, True),
        (build_started_job(1_000), 80, 181, True),
    ],
    ids=[
        *("before the deadline", "after it", "not recorded", "not recorded, after it"),
        *("recorded before a suspension", "recorded after one", "recorded in the future"),
    ],
)
def test_deadline_counts_from_the_recorded_start(job, since, now, is_over):
    verdict = judge(observe(job, *list_nodes(since, attempt=1)), RULES, BEGAN + timedelta(seconds=now))
    expected = (Phase.FAILED, "DeadlineExceeded") if is_over else (Phase.RUNNING, "Running")
    assert (verdict.phase, verdict.reason) == expected


def find_start(job, *pods, rules: JudgingContext = RULES) -> str | None:
    """Return the start that must be recorded."""
    observed = observe(job, *pods)
    patch = build_start_patch(observed.job, rules, lambda: observed)
    return None if patch is None else patch["metadata"]["annotations"][ANNOTATION]


def test_start_is_recorded_once_the_job_runs_and_again_after_a_suspension():
    assert find_start(build_job(), build_pod(0), build_pod(1)) is None
    assert find_start(build_job(), build_running(0, 7), build_pod(1)) == at(7)
    assert find_start(build_started_job(7), build_running(0, 7), build_pod(1)) is None
    # The first pods of the second attempt have not run.
    assert find_start(build_job(), build_pod(0, attempt=1)) is None
    assert find_start(build_started_job(7, RESUMED), *list_nodes(70, attempt=0)) == at(70)
    # The start is not before the job could run.
    assert find_start(build_job(RESUMED), *list_nodes(50, attempt=0)) == at(60)


def test_start_is_recorded_only_with_a_deadline_before_the_end_of_a_train_job():
    nodes = list_nodes(5, attempt=0)
    assert find_start(build_job(), *nodes, rules=JudgingContext()) is None
    assert find_start(build_job(build_condition("Complete")), *nodes) is None
    assert find_start(None) is None
    platform = JudgingContext(judging=JudgingSettings(active_deadline=timedelta(minutes=1)))
    assert find_start(build_job(), *nodes, rules=platform) == at(5)
    other = {"kind": "PyTorchJob", "metadata": {"name": "j", "creationTimestamp": at(0)}}
    assert find_start(other) is None
