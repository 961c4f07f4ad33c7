"""Replacement of conditions, and their transition times."""

from typing import Any

from operated_jobs import NOW, a_condition, after, stamp

from backend_plugin.embedded.operators.pytorchjob.status import StatusBuilder


def a_status(*conditions: dict[str, Any]) -> StatusBuilder:
    return StatusBuilder.from_manifest({"conditions": list(conditions)}, after(60))


def types(status: StatusBuilder) -> list[tuple[Any, Any]]:
    return [(each["type"], each["status"]) for each in status.conditions]


def test_what_is_said_already_is_left_as_it_is() -> None:
    status = a_status(a_condition("Created"), a_condition("Running"))
    status.set_condition("Created", "in other words")
    assert status.conditions == [a_condition("Created"), a_condition("Running")]


def test_the_newest_stands_last() -> None:
    status = a_status(a_condition("Suspended"), a_condition("Created"))
    status.set_condition("Suspended", "it goes on", word="Resumed", holds="False")
    assert status.conditions == [
        a_condition("Created"),
        {
            "type": "Suspended",
            "status": "False",
            "reason": "PyTorchJobResumed",
            "message": "it goes on",
            "lastUpdateTime": stamp(60),
            "lastTransitionTime": stamp(60),
        },
    ]


def test_another_reason_is_no_transition() -> None:
    status = a_status(a_condition("Running", "False"))
    status.set_condition("Running", "it is suspended", word="Suspended", holds="False")
    assert [(each["lastUpdateTime"], each["lastTransitionTime"]) for each in status.conditions] == [
        (stamp(60), stamp())
    ]


def test_a_job_runs_or_restarts() -> None:
    status = a_status(a_condition("Created"), a_condition("Running"))
    status.set_condition("Restarting", "a replica failed")
    assert types(status) == [("Created", "True"), ("Restarting", "True")]
    status.set_condition("Running", "it runs")
    assert types(status) == [("Created", "True"), ("Running", "True")]


def test_at_its_end_it_runs_no_more_and_all_else_stays() -> None:
    status = a_status(a_condition("Created"), a_condition("Running"), a_condition("Suspended", "False"))
    status.set_condition("Succeeded", "it is done")
    assert status.conditions[:3] == [
        a_condition("Created"),
        {**a_condition("Running"), "status": "False"},
        a_condition("Suspended", "False"),
    ]


def test_nothing_is_said_of_a_job_that_has_failed() -> None:
    status = a_status(a_condition("Failed"))
    status.set_condition("Succeeded", "after all")
    assert status.conditions == [a_condition("Failed")]


def test_what_is_read_is_what_was_written() -> None:
    stored = {
        "conditions": [a_condition("Created")],
        "replicaStatuses": {
            "Master": {"active": 1, "selector": "a=b"},
            "Worker": {"failed": 2, "restarts": 3},
        },
        "startTime": stamp(1),
        "completionTime": stamp(2),
        "lastReconcileTime": stamp(3),
    }
    assert StatusBuilder.from_manifest(stored, NOW).build_manifest() == stored
    assert StatusBuilder.from_manifest({}, NOW).build_manifest() == {}
