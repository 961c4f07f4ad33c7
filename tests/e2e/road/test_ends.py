"""How a task ends, from its template to its outputs or its error; real processes all along."""

import re
from pathlib import Path

import pytest

from e2e.road import tasks
from e2e.road.conftest import Road, ended, started

pytestmark = pytest.mark.timeout(180)


def test_outputs_of_many_types_come_back(road: Road) -> None:
    outcome = road.run(tasks.types_of_replicas, scale=3.0, names=["a", "b"])

    outputs = dict(outcome.outputs)
    weights = outputs.pop("weights")
    assert (outcome.phase, outcome.attempts[0].phases[-1]) == ("SUCCEEDED", "SUCCEEDED")
    assert outputs == {
        "loss": 1.5,
        "steps": 3,
        "label": "rank 0",
        "curve": tasks.Curve("a+b", [3.0, 6.0]),
    }
    assert Path(weights).read_text() == "weights of 2"


@pytest.mark.torch
def test_elastic_agents_find_each_other_and_reduce(road: Road) -> None:
    outcome = road.run(tasks.elastic_sum, value=10)

    assert outcome.phase == "SUCCEEDED", outcome
    assert outcome.outputs == {"o0": 21, "o1": {"world": 2}}
    assert len(outcome.attempts) == 1


@pytest.mark.torch
def test_elastic_processes_start_again_together(road: Road, tmp_path: Path) -> None:
    execution = road.start(tasks.elastic_second_wind, folder=str(tmp_path))
    outcome = ended(execution)

    assert (outcome.phase, outcome.outputs) == ("SUCCEEDED", {"o0": 1})
    assert started(tmp_path, execution) == ["0.0", "0.0", "0.1", "0.1"]


def test_a_users_exception_is_told_and_stops_the_others(road: Road) -> None:
    execution = road.start(tasks.raises_with_outputs)
    outcome = ended(execution)

    assert outcome.phase == "FAILED"
    assert outcome.code == "TaskFailedWithError"
    assert "ValueError: batch 7 has 31 labels for 32 images" in outcome.error
    assert "worker-0 failed" in outcome.error
    assert execution.calls == ["CreateTask 0"]
    assert road.nothing_runs(execution)


def test_a_users_exception_is_told_where_nothing_would_read_it(road: Road) -> None:
    outcome = road.run(tasks.raises_without_outputs)

    assert outcome.phase == "FAILED"
    assert "ValueError: batch 7 has 31 labels for 32 images" in outcome.error


def test_what_the_user_calls_recoverable_is_tried_again(road: Road, tmp_path: Path) -> None:
    execution = road.start(tasks.recovers, folder=str(tmp_path))
    outcome = ended(execution)

    assert (outcome.phase, outcome.outputs) == ("SUCCEEDED", {"o0": 1})
    assert execution.calls == ["CreateTask 0", "DeleteTask 0", "CreateTask 1"]
    assert "the shard is not there yet" in outcome.attempts[0].message("RETRYABLE_FAILED")
    assert started(tmp_path, execution) == ["0.0", "1.0"]


def test_an_exit_code_is_the_users_and_not_tried_again(road: Road) -> None:
    execution = road.start(tasks.exits, code=3)
    outcome = ended(execution)

    assert outcome.phase == "FAILED"
    assert re.search(r"exit(ed with)?( code)? 3\b|SystemExit: 3|sys\.exit\(3\)", outcome.error), outcome.error
    assert execution.calls == ["CreateTask 0"]


def test_a_killed_rank_ends_the_task_and_is_named(road: Road) -> None:
    execution = road.start(tasks.is_killed)
    outcome = ended(execution)

    assert outcome.code == "RetriesExhausted|TaskFailedWithError"
    assert re.search(r"worker-0|rank 1\b", outcome.error)
    assert re.search(r"SIGKILL|137", outcome.error)
    assert road.nothing_runs(execution)


def test_memory_beyond_the_limit_is_named_as_such(road: Road) -> None:
    outcome = road.run(tasks.takes_too_much)

    assert outcome.code == "RetriesExhausted|TaskFailedWithError"
    assert "OOMKilled" in outcome.error
    assert "oom-host" in outcome.error


def test_a_container_restarts_in_place_where_that_is_asked_for(road: Road, tmp_path: Path) -> None:
    execution = road.start(tasks.restarts_in_place, folder=str(tmp_path))
    outcome = ended(execution)

    assert (outcome.phase, outcome.outputs) == ("SUCCEEDED", {"o0": 1})
    assert started(tmp_path, execution) == ["0.0", "0.0"]
    assert len(outcome.attempts) == 1
