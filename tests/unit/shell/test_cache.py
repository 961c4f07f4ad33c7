"""Tests of the cache of cluster objects."""

import json
from datetime import datetime, timezone

import pytest
from builders import a_run

from backend_plugin.core import names, task_annotation
from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.job import Attempt, Deadlines
from backend_plugin.core.observed import Event, Job, Pod, PodGroup
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.cluster import ObjectName

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def a_cache(*jobs: str) -> Cache:
    cache = Cache(lambda: NOW)
    for name in jobs:
        cache.put_record("ns", Job(name=name))
    return cache


def get_entry(cache: Cache, name: str) -> CachedJob:
    entry = cache.get(("ns", name))
    assert entry is not None
    return entry


def test_cache_is_ready_after_all_jobs_and_pods_were_listed() -> None:
    cache = a_cache()
    cache.replace_records(Job, [("ns", Job(name="j"))])
    assert not cache.ready.is_set()
    cache.replace_records(Pod, [])
    assert cache.ready.is_set()


def test_pods_and_events_are_assigned_to_their_jobs() -> None:
    cache = a_cache()
    cache.put_record("ns", Job(name="a-b", uid="1"))
    cache.put_record("ns", Job(name="a-b-worker-0", uid="2"))
    cache.put_record("ns", Pod(name="a-b-worker-0", job_name="a-b", uid="p"))
    cache.put_record("ns", Event(reason="Failed", name="a-b-master-0"))
    cache.put_record("ns", Event(reason="Failed", name="nobody-s"))
    cache.put_record("elsewhere", Pod(name="x", job_name="a-b"))
    mine = get_entry(cache, "a-b")
    assert [pod.uid for pod in mine.pods] == ["p"]
    assert [event.name for event in mine.events] == ["a-b-master-0"]
    cache.drop_record(Pod, ObjectName(namespace="ns", name="a-b-worker-1"))
    assert [pod.uid for pod in mine.pods] == ["p"]


def test_job_missing_from_a_list_is_unconfirmed_and_a_deleted_one_is_marked() -> None:
    cache = a_cache()
    for name in ("left out", "deleted", "there"):
        cache.put_record("ns", Job(name=name, uid=name))
    cache.drop_record(Job, ObjectName(namespace="ns", name="deleted", uid="another"))
    assert get_entry(cache, "deleted").gone is None
    cache.drop_record(Job, ObjectName(namespace="ns", name="deleted", uid="deleted"))
    cache.replace_records(Job, [("ns", Job(name="there", uid="there"))])
    for name, expected in (("left out", (None, True)), ("deleted", (NOW, False)), ("there", (None, False))):
        assert (get_entry(cache, name).gone, get_entry(cache, name).unconfirmed) == expected


def test_later_job_of_the_same_name_has_no_pods_of_the_earlier() -> None:
    cache = a_cache()
    cache.put_record("ns", Job(name="j", uid="1"))
    cache.put_record("ns", Pod(name="j-worker-0", job_name="j", owners=("1",)))
    cache.put_record("ns", Pod(name="j-worker-2", job_name="j"))
    # The pods of a later job may arrive before it.
    cache.put_record("ns", Pod(name="j-worker-1", job_name="j", owners=("2",)))
    cache.put_record("ns", Job(name="j", uid="2"))
    assert [each.name for each in get_entry(cache, "j").pods] == ["j-worker-1"]


def test_each_listener_receives_each_change_once() -> None:
    cache = a_cache()
    heard: list[tuple[str, int]] = []
    stop = cache.listen(lambda entry: heard.append((entry.name, entry.version)))
    cache.put_record("ns", Job(name="j", uid="1"))
    cache.put_record("ns", Job(name="j", uid="1"))
    cache.replace_records(Job, [("ns", Job(name="j", uid="1"))])
    assert heard == [("j", 1)]
    cache.put_record("ns", Job(name="j", uid="1", deleting=True))
    cache.put_record("ns", Pod(name="j-worker-0", job_name="j"))
    stop()
    cache.put_record("ns", Job(name="j", uid="1"))
    assert heard == [("j", 1), ("j", 2), ("j", 3)]


def test_number_of_missing_jobs_in_the_cache_is_limited() -> None:
    cache = a_cache()
    cache.put_record("ns", Job(name="there"))
    back = cache.add_missing_job(("ns", "back"), "s3://b")
    cache.put_record("ns", Job(name="back"))
    for number in range(6_000):
        cache.add_missing_job(("ns", f"made-up-{number}"), "s3://b")
    assert len(cache) == 2 + 2_000
    assert back.gone is None
    assert {get_entry(cache, name).gone for name in ("there", "back")} == {None}


def outlived(cache: Cache, count: int) -> None:
    """Add jobs that are removed from the cache before their pods."""
    for number in range(count):
        cache.put_record("ns", Job(name=f"j{number}", uid="1"))
        cache.drop_record(Job, ObjectName(namespace="ns", name=f"j{number}", uid="1"))
        cache.forget(get_entry(cache, f"j{number}"))
        cache.put_record("ns", Pod(name=f"j{number}-master-0", job_name=f"j{number}", uid="p"))
        cache.put_record("ns", Pod(name=f"j{number}-worker-0", job_name=f"j{number}", uid="p"))


def test_entry_of_a_deleted_job_is_removed_with_its_last_pod() -> None:
    cache = a_cache()
    outlived(cache, 10)
    for number in range(10):
        cache.drop_record(Pod, ObjectName(namespace="ns", name=f"j{number}-master-0", uid="p"))
    assert len(cache) == 10
    for number in range(10):
        cache.drop_record(Pod, ObjectName(namespace="ns", name=f"j{number}-worker-0", uid="p"))
    assert len(cache) == 0


def test_entry_of_a_deleted_job_is_removed_if_no_list_has_its_pods() -> None:
    cache = a_cache()
    outlived(cache, 3)
    cache.put_record("ns", Event(reason="Killing", name="j0-worker-0"))
    cache.replace_records(Pod, [("ns", Pod(name="j1-worker-0", job_name="j1", uid="p"))])
    assert [entry.name for entry in cache] == ["j0", "j1"]
    cache.replace_records(Event, [])
    assert [entry.name for entry in cache] == ["j1"]


def test_job_received_after_its_pods_has_the_remaining_pods() -> None:
    cache = a_cache()
    for name in ("a", "b"):
        cache.put_record("ns", Pod(name=f"{name}-master-0", job_name=name, uid="1"))
    cache.drop_record(Pod, ObjectName(namespace="ns", name="b-master-0", uid="1"))
    for name in ("a", "b"):
        cache.put_record("ns", Job(name=name, uid="j"))
    assert [pod.name for entry in cache for pod in entry.pods] == ["a-master-0"]
    cache.drop_record(Pod, ObjectName(namespace="ns", name="a-master-0", uid="1"))
    assert [entry.name for entry in cache] == ["a", "b"]


def test_deleted_job_is_kept_without_its_pods() -> None:
    cache = a_cache()
    cache.put_record("ns", Job(name="j", uid="1"))
    cache.put_record("ns", Pod(name="j-master-0", job_name="j", uid="p"))
    cache.drop_record(Job, ObjectName(namespace="ns", name="j", uid="1"))
    cache.drop_record(Pod, ObjectName(namespace="ns", name="j-master-0", uid="p"))
    assert (get_entry(cache, "j").gone, get_entry(cache, "j").pods) == (NOW, ())
    never = cache.add_missing_job(("ns", "never"), "s3://b")
    cache.put_record("ns", Pod(name="never-master-0", job_name="never", uid="p"))
    cache.drop_record(Pod, ObjectName(namespace="ns", name="never-master-0", uid="p"))
    assert cache.get(never.key) is never


def test_preemption_survives_the_routine_events_of_a_large_job() -> None:
    cache = a_cache("j")
    for reason in ("Preempted", "Killing", *["SuccessfulDeletePod", "SuccessfulCreatePod", "Started"] * 100):
        cache.put_record("ns", Event(kind="Pod", name="j-worker-0", reason=reason))
    kept = [event.reason for event in get_entry(cache, "j").events]
    assert (kept[0], len(kept), kept[-1]) == ("Preempted", 50, "Started")


def test_events_of_a_job_are_limited() -> None:
    cache = a_cache("j")
    for number in range(200):
        cache.put_record("ns", Event(reason=str(number), name="j"))
    entry = get_entry(cache, "j")
    assert [int(event.reason) for event in entry.events] == [*range(150, 200)]
    cache.forget(entry)
    assert len(cache) == 0


def test_relist_removes_missing_objects_and_notifies_listeners() -> None:
    cache = a_cache()
    for name in ("j", "k"):
        cache.put_record("ns", Job(name=name))
        cache.put_record("ns", PodGroup(kind="PodGroup", name=name))
        get_entry(cache, name).accompanied = True
    cache.put_record("ns", Pod(name="j-worker-0", job_name="j"))
    cache.put_record("ns", Event(reason="Old", name="j"))
    before = get_entry(cache, "j").version
    cache.replace_records(Pod, [])
    cache.replace_records(PodGroup, [("ns", PodGroup(kind="PodGroup", name="k"))])
    cache.replace_records(Event, [("ns", Event(reason="New", name="j"))])
    entry = get_entry(cache, "j")
    assert (entry.pods, entry.pod_groups, [each.reason for each in entry.events]) == ((), (), ["New"])
    # A missing companion counts as deleted, so companions are checked again, which is a change too.
    assert entry.version == before + 4
    assert (entry.accompanied, get_entry(cache, "k").accompanied) == (False, True)


def test_relist_notifies_only_about_differences() -> None:
    cache = a_cache()
    pods = [("ns", Pod(name=name, job_name=name[0])) for name in ("a-worker-0", "a-worker-1", "b-worker-0")]
    cache.replace_records(Pod, pods)
    heard: list[str] = []
    cache.listen(lambda entry: heard.append(entry.name))
    cache.replace_records(Pod, pods)
    assert heard == []
    cache.replace_records(Pod, pods[1:])
    assert heard == ["a"]


def test_confirmation_of_a_missing_job_is_a_change() -> None:
    cache = a_cache("j")
    cache.replace_records(Job, [])
    assert get_entry(cache, "j").unconfirmed
    cache.put_record("ns", Job(name="j"))
    assert not get_entry(cache, "j").unconfirmed
    cache.mark_deleted(get_entry(cache, "j"))
    cache.put_record("ns", Job(name="j"))
    assert (get_entry(cache, "j").gone, get_entry(cache, "j").version) == (None, 5)


def test_changed_pod_keeps_its_position() -> None:
    cache = a_cache()
    for index in range(3):
        cache.put_record("ns", Pod(name=f"j-worker-{index}", job_name="j", index=index))
    first, _, last = get_entry(cache, "j").pods
    changed = Pod(name="j-worker-1", job_name="j", index=1, phase="Running")
    cache.put_record("ns", changed)
    pods = get_entry(cache, "j").pods
    assert pods == (first, changed, last)
    assert pods[0] is first


@pytest.mark.parametrize(("config", "held_once"), [("primary", True), ("x" * 200_000, False)])
def test_short_equal_parts_of_jobs_are_shared(config: str, held_once: bool) -> None:
    cache = a_cache()
    for number in range(2):
        run = a_run(execution=f"f{number}", output_prefix=f"s3://b/f{number}/n0/data/0")
        annotation = task_annotation.encode(
            run, Deadlines(active_seconds=7), {"primary_container_name": config}
        )
        metadata = {"name": f"j{number}", "annotations": {task_annotation.ANNOTATION: annotation}}
        cache.put_record("ns", read_job(json.loads(json.dumps({"metadata": metadata}))))
    one, other = (get_entry(cache, name) for name in ("j0", "j1"))
    assert one.origin.deadlines is other.origin.deadlines
    assert (one.origin.task_config is other.origin.task_config) is held_once
    assert one.origin.task_config == other.origin.task_config
    assert one.origin.run.labels is other.origin.run.labels
    assert next(iter(one.job.annotations)) is next(iter(other.job.annotations))


def test_recreated_pod_is_not_removed_with_its_predecessor() -> None:
    cache = a_cache()
    cache.put_record("ns", Pod(name="a-worker-0", job_name="a", uid="2"))
    cache.drop_record(Pod, ObjectName(namespace="ns", name="a-worker-0", uid="1"))
    assert [each.uid for each in get_entry(cache, "a").pods] == ["2"]
    cache.drop_record(Pod, ObjectName(namespace="ns", name="a-worker-0", uid="2"))
    assert cache.get(("ns", "a")) is None


def attempt(number: int, node: str = "n0", namespace: str = "ns") -> Attempt:
    return a_run(output_prefix=f"s3://b/p-d-e-{node}/data/{number}", namespace=namespace, attempt=number)


def job_of(run: Attempt, uid: str = "1") -> Job:
    annotations = {
        task_annotation.ANNOTATION: task_annotation.encode(run, Deadlines(), {}),
        names.OUTPUT_PREFIX: run.output_prefix,
    }
    return Job(name=f"j{run.attempt}", uid=uid, annotations=annotations)


def list_names(cache: Cache, run: Attempt) -> list[str]:
    return [entry.name for entry in cache.get_attempts(run)]


def test_attempts_of_a_flyte_node_are_found_by_any_of_them() -> None:
    cache = a_cache()
    for number in range(2):
        cache.put_record("ns", job_of(attempt(number)))
        cache.put_record("ns", job_of(attempt(number)))
    cache.put_record("ns", job_of(attempt(2, node="n1")))
    cache.put_record("other", job_of(attempt(3, namespace="other")))
    cache.put_record("ns", Job(name="nobodys"))
    assert list_names(cache, attempt(7)) == ["j0", "j1"]
    assert list_names(cache, attempt(7, node="n2")) == []


def test_forgotten_or_replaced_attempts_are_not_found() -> None:
    cache = a_cache()
    for number in range(3):
        cache.put_record("ns", job_of(attempt(number)))
    cache.forget(get_entry(cache, "j0"))
    cache.put_record("ns", Job(name="j1", uid="another"))
    cache.put_record("ns", job_of(attempt(2), uid="another"))
    assert list_names(cache, attempt(7)) == ["j2"]
    cache.put_record("ns", Job(name="j2", uid="another"))
    assert list_names(cache, attempt(7)) == []


def test_events_of_placeholder_pods_are_assigned_to_the_job() -> None:
    cache = a_cache("j")
    cache.put_record("ns", Pod(name="tg-j-worker-x", job_name="j", place="worker"))
    cache.put_record("ns", Event(reason="Informational", name="tg-j-worker-x"))
    cache.put_record("elsewhere", Event(reason="Informational", name="tg-j-worker-x"))
    assert [event.name for event in get_entry(cache, "j").events] == ["tg-j-worker-x"]
    cache.drop_record(Pod, ObjectName(namespace="ns", name="tg-j-worker-x"))
    assert get_entry(cache, "j").pods == ()
    cache.put_record("ns", Event(reason="TaskCompleted", name="tg-j-worker-x"))
    assert len(get_entry(cache, "j").events) == 1
    cache.replace_records(Pod, [("ns", Pod(name="tg-j-worker-y", job_name="j", place="worker"))])
    cache.put_record("ns", Event(reason="Informational", name="tg-j-worker-y"))
    assert len(get_entry(cache, "j").events) == 2


def test_event_of_a_kai_pod_group_is_assigned_to_its_job() -> None:
    cache = a_cache("j")
    name = "pg-j-0a1b2c3d-0000-4000-8000-0123456789ab"
    cache.put_record("ns", Event(reason="NotReady", kind="PodGroup", name=name))
    assert [event.name for event in get_entry(cache, "j").events] == [name]


def test_only_the_deleted_object_of_several_with_one_name_is_removed() -> None:
    cache = a_cache("j")
    workload = PodGroup(kind="Workload", api="kueue.x-k8s.io", name="j", uid="w")
    cache.put_record("ns", workload)
    for api, uid in (("scheduling.x-k8s.io", "a"), ("scheduling.volcano.sh", "b")):
        cache.put_record("ns", PodGroup(kind="PodGroup", api=api, name="j", uid=uid))
    assert [group.uid for group in get_entry(cache, "j").pod_groups] == ["w", "a", "b"]
    cache.drop_record(PodGroup, ObjectName(namespace="ns", name="j", uid="a"))
    assert [group.uid for group in get_entry(cache, "j").pod_groups] == ["w", "b"]
    # A new group of the same name has another uid.
    cache.drop_record(PodGroup, ObjectName(namespace="ns", name="j", uid="a"))
    assert [group.uid for group in get_entry(cache, "j").pod_groups] == ["w", "b"]
    cache.drop_record(PodGroup, ObjectName(namespace="ns", name="j"))
    assert get_entry(cache, "j").pod_groups == ()
