"""Tests of the queue position of a job."""

from datetime import datetime, timezone

import pytest

from backend_plugin.core.observed import Condition, Job, PodGroup
from backend_plugin.shell import queue_positions
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.cluster import ObjectName
from backend_plugin.shell.queue_positions import QueuePositions

API = "kueue.x-k8s.io"
RESERVED = Condition(type="QuotaReserved", true=True)


def workload(uid: str, second: int = 0, *conditions: Condition, **fields: object) -> PodGroup:
    created = datetime(2026, 1, 1, 0, 0, second, tzinfo=timezone.utc)
    given = {"name": uid, "uid": uid, "queue": "team", "created": created, "conditions": conditions}
    return PodGroup(kind="Workload", api=API, **{**given, **fields})  # type: ignore[arg-type]


def standing(*groups: PodGroup) -> QueuePositions:
    found = QueuePositions()
    for group in groups:
        found.put_group("ns", group)
    return found


OURS = workload("ours", 5)


def test_jobs_with_higher_priority_or_earlier_creation_are_ahead() -> None:
    others = workload("early", 1), workload("late", 7), workload("low", 0, priority=-1)
    assert standing(OURS, workload("high", 9, priority=1), *others).with_position(OURS).ahead == 2


def test_job_in_another_queue_or_already_admitted_is_not_ahead() -> None:
    others = workload("other queue", 1, queue="x"), workload("runs", 1, RESERVED), workload("early", 1)
    found = standing(OURS, *others)
    found.put_group("elsewhere", workload("early elsewhere", 1))
    assert found.with_position(OURS).ahead == 1
    found.put_group("ns", workload("early", 1, RESERVED))
    assert found.with_position(OURS).ahead == 0
    found.put_group("ns", workload("again", 1))
    for uid in ("again", "unknown", None):
        found.drop_group(uid)
    assert found.with_position(OURS).ahead == 0
    found.put_group("ns", workload("ours", 5, RESERVED))
    assert found.with_position(OURS).ahead is None


def test_pod_group_without_a_kueue_queue_has_no_position() -> None:
    group = PodGroup(kind="PodGroup", api="scheduling.volcano.sh", name="j", uid="g", queue="team")
    assert standing(group).with_position(group) == group


def test_position_in_a_very_long_queue_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    # Fill the queue with two groups instead of ten thousand.
    monkeypatch.setattr(queue_positions, "_LONGEST", 2)
    found = standing(workload("a", 1), workload("b", 2), OURS)
    assert found.with_position(OURS).ahead is None
    assert found.with_position(workload("b", 2)).ahead is None


def test_job_has_a_queue_position_and_no_foreign_workloads() -> None:
    cache = Cache(lambda: datetime(2026, 1, 1, tzinfo=timezone.utc))
    cache.put_record("ns", Job(name="j"))
    cache.put_record("ns", Job(name="theirs"))
    groups = workload("u", 5, name="j"), workload("theirs", 1, foreign=True)
    cache.replace_records(PodGroup, [("ns", each) for each in groups])
    entries = {entry.name: entry for entry in cache}
    assert [group.ahead for group in entries["j"].get_observed_state().pod_groups] == [1]
    assert entries["theirs"].get_observed_state().pod_groups == ()
    cache.drop_record(PodGroup, ObjectName(namespace="ns", name="theirs", uid="theirs"))
    assert [group.ahead for group in entries["j"].get_observed_state().pod_groups] == [0]
    cache.replace_records(PodGroup, [])
    cache.put_record("ns", workload("late", 9, foreign=True))
    assert entries["j"].get_observed_state().pod_groups == ()
