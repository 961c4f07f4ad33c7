"""Results of tasks with real processes, from the template to the outputs or the error."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from propeller import Execution

from e2e.propeller_flow import tasks
from e2e.propeller_flow.conftest import Road, started, wait_for_outcome

pytestmark = pytest.mark.timeout(180)

RAISED = "ValueError: batch 7 has 31 labels for 32 images"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which tasks record their starts."""
    return tmp_path_factory.mktemp("notes")


@pytest.fixture(scope="module")
def begun(road: Road, folder: Path) -> Mapping[str, Execution]:
    """Start one execution per case, all at the same time, because this is faster."""
    noting, alone = {"folder": str(folder)}, tmp(folder, "restarts")
    return {
        "succeeds": road.start(tasks.types_of_replicas, scale=3.0, names=["a", "b"]),
        "raises": road.start(tasks.raises_with_outputs),
        "raises unread": road.start(tasks.raises_without_outputs),
        "recovers": road.start(tasks.recovers, **noting),
        "exits": road.start(tasks.exits, code=3),
        "is killed": road.start(tasks.is_killed),
        "takes too much": road.start(tasks.takes_too_much),
        "restarts": road.start(tasks.restarts_in_place, folder=str(alone)),
    }


def tmp(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def test_outputs_of_many_types_come_back(begun: Mapping[str, Execution]) -> None:
    outcome = wait_for_outcome(begun["succeeds"])

    outputs = dict(outcome.outputs)
    weights = outputs.pop("weights")
    assert (outcome.phase, outcome.last.phases[-1]) == ("SUCCEEDED", "SUCCEEDED")
    assert outputs == {
        "loss": 1.5,
        "steps": 3,
        "label": "rank 0",
        "curve": tasks.Curve("a+b", [3.0, 6.0]),
    }
    assert Path(weights).read_text() == "weights of 2"


def test_a_users_exception_is_told_and_stops_the_others(road: Road, begun: Mapping[str, Execution]) -> None:
    outcome = wait_for_outcome(begun["raises"])

    assert (outcome.phase, outcome.code) == ("FAILED", "TaskFailedWithError")
    assert RAISED in outcome.error
    assert "worker-0 failed" in outcome.error
    assert begun["raises"].calls == ["CreateTask 0"]
    assert road.nothing_runs(begun["raises"])


def test_a_users_exception_is_told_where_propeller_reads_nothing(begun: Mapping[str, Execution]) -> None:
    outcome = wait_for_outcome(begun["raises unread"])

    assert outcome.phase == "FAILED"
    assert RAISED in outcome.error


def test_what_the_user_calls_recoverable_is_tried_again(begun: Mapping[str, Execution], folder: Path) -> None:
    execution = begun["recovers"]
    outcome = wait_for_outcome(execution)

    assert (outcome.phase, outcome.outputs) == ("SUCCEEDED", {"o0": 1})
    assert execution.calls == ["CreateTask 0", "DeleteTask 0", "CreateTask 1"]
    assert "the shard is not there yet" in outcome.attempts[0].message("RETRYABLE_FAILED")
    assert started(folder, execution) == ["0.0", "1.0"]


def test_an_exit_code_is_the_users_and_not_tried_again(begun: Mapping[str, Execution]) -> None:
    outcome = wait_for_outcome(begun["exits"])

    assert outcome.phase == "FAILED"
    assert re.search(r"exit code 3\b|sys\.exit\(3\)", outcome.error), outcome.error
    assert begun["exits"].calls == ["CreateTask 0"]


def test_a_killed_replica_ends_the_task_and_is_named(road: Road, begun: Mapping[str, Execution]) -> None:
    outcome = wait_for_outcome(begun["is killed"])

    assert outcome.code == "RetriesExhausted|TaskFailedWithError"
    assert "worker-0 failed" in outcome.error
    assert "SIGKILL" in outcome.error
    assert road.nothing_runs(begun["is killed"])


def test_memory_beyond_the_limit_is_named_as_such(begun: Mapping[str, Execution]) -> None:
    outcome = wait_for_outcome(begun["takes too much"])

    assert outcome.code == "RetriesExhausted|TaskFailedWithError"
    assert "OOMKilled" in outcome.error


def test_a_container_restarts_in_place_where_that_is_asked_for(
    begun: Mapping[str, Execution], folder: Path
) -> None:
    outcome = wait_for_outcome(begun["restarts"])

    assert (outcome.phase, outcome.outputs) == ("SUCCEEDED", {"o0": 1})
    assert started(folder / "restarts", begun["restarts"]) == ["0.0", "0.0"]
    assert len(outcome.attempts) == 1


@pytest.mark.torch
def test_ranks_find_each_other_on_the_loopback_interface_and_reduce(road: Road) -> None:
    executions = [road.start(each, value=10) for each in (tasks.elastic_sum, tasks.replica_sum)]

    for outcome in map(wait_for_outcome, executions):
        assert outcome.phase == "SUCCEEDED", outcome
        assert outcome.outputs == {"o0": 21, "o1": {"world": 2, "listens": 1, "open": 0}}
        assert len(outcome.attempts) == 1


@pytest.mark.torch
def test_elastic_processes_start_again_together(road: Road, tmp_path: Path) -> None:
    execution = road.start(tasks.elastic_second_wind, folder=str(tmp_path))
    outcome = wait_for_outcome(execution)

    assert (outcome.phase, outcome.outputs) == ("SUCCEEDED", {"o0": 1})
    assert started(tmp_path, execution) == ["0.0", "0.0", "0.1", "0.1"]
    assert len(outcome.attempts) == 1
