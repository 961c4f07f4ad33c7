"""Tests of the cache of cluster objects and of the queue positions in it."""

import json
from datetime import datetime, timedelta, timezone

from builders import a_run

from backend_plugin.core import names, task_annotation
from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.job import Deadlines
from backend_plugin.core.observed import Condition, Event, Job, Pod, PodGroup
from backend_plugin.shell import queue_positions
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.cluster import ObjectName
from backend_plugin.shell.queue_positions import QueuePositions

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
RESERVED = Condition(type="QuotaReserved", true=True)


def a_cache(*records):
    """Return a cache that received these records, all in one namespace."""
    cache = Cache(lambda: NOW)
    put(cache, *records)
    return cache


def put(cache, *records, namespace="ns"):
    for record in records:
        cache.put_record(namespace, record)


def drop(cache, kind, name, uid=""):
    cache.drop_record(kind, ObjectName(namespace="ns", name=name, uid=uid))


def relist(cache, kind, *records):
    cache.replace_records(kind, [("ns", record) for record in records])


def a_pod(name, uid="p", **fields):
    """Return a pod; the name of its job is the name without role and index."""
    return Pod(name=name, job_name=name.rsplit("-", 2)[0], uid=uid, **fields)


def get_entry(cache, name="j"):
    entry = cache.get(("ns", name))
    assert entry is not None
    return entry


def list_pods(cache, name="j"):
    return [pod.name for pod in get_entry(cache, name).pods]


def list_events(cache, name="j"):
    return [event.reason for event in get_entry(cache, name).events]


def list_jobs(cache):
    return [entry.name for entry in cache]


def test_cache_is_ready_after_all_jobs_and_pods_were_listed():
    cache = a_cache()
    relist(cache, Job, Job(name="j"))
    assert not cache.ready.is_set()
    relist(cache, Pod)
    assert cache.ready.is_set()


def test_pods_and_events_are_assigned_to_their_jobs():
    cache = a_cache(Job(name="a-b", uid="1"), Job(name="a-b-worker-0", uid="2"), a_pod("a-b-worker-0"))
    put(cache, Event(reason="Failed", name="a-b-master-0"), Event(reason="Killing", name="nobody-s"))
    put(cache, Event(reason="NotReady", kind="PodGroup", name="pg-a-b-0a1b2c3d-0000-4000-8000-0123456789ab"))
    put(cache, a_pod("a-b-worker-1"), namespace="elsewhere")
    drop(cache, Pod, "a-b-worker-1")
    assert (list_pods(cache, "a-b"), list_events(cache, "a-b")) == (["a-b-worker-0"], ["Failed", "NotReady"])


def test_job_missing_from_a_list_is_unconfirmed_and_a_deleted_one_is_marked():
    cache = a_cache(*(Job(name=name, uid=name) for name in ("left out", "deleted", "there")))
    drop(cache, Job, "deleted", "another")
    assert get_entry(cache, "deleted").gone is None
    drop(cache, Job, "deleted", "deleted")
    relist(cache, Job, Job(name="there", uid="there"))
    for name, expected in (("left out", (None, True)), ("deleted", (NOW, False)), ("there", (None, False))):
        assert (get_entry(cache, name).gone, get_entry(cache, name).unconfirmed) == expected


def test_later_job_of_the_same_name_has_no_pods_of_the_earlier():
    cache = a_cache(Job(name="j", uid="1"), a_pod("j-worker-0", owners=("1",)), a_pod("j-worker-2"))
    # The pods of a later job may arrive before it.
    put(cache, a_pod("j-worker-1", owners=("2",)), Job(name="j", uid="2"))
    assert list_pods(cache) == ["j-worker-1"]


def test_each_listener_receives_each_change_once():
    cache = a_cache()
    notified = []
    stop = cache.listen(lambda entry: notified.append((entry.name, entry.version)))
    put(cache, Job(name="j", uid="1"), Job(name="j", uid="1"))
    relist(cache, Job, Job(name="j", uid="1"))
    assert notified == [("j", 1)]
    put(cache, Job(name="j", uid="1", deleting=True), a_pod("j-worker-0"))
    stop()
    put(cache, Job(name="j", uid="1"))
    assert notified == [("j", 1), ("j", 2), ("j", 3)]


def test_number_of_missing_jobs_in_the_cache_is_limited():
    cache = a_cache(Job(name="there"))
    back = cache.add_missing_job(("ns", "back"), "s3://b")
    put(cache, Job(name="back"))
    for number in range(6_000):
        cache.add_missing_job(("ns", f"made-up-{number}"), "s3://b")
    assert len(cache) == 2 + 2_000
    assert (back.gone, get_entry(cache, "there").gone, get_entry(cache, "back").gone) == (None, None, None)


def outlived(count):
    """Return a cache of jobs that were removed before their pods arrived."""
    cache = a_cache()
    for number in range(count):
        put(cache, Job(name=f"j{number}", uid="1"))
        drop(cache, Job, f"j{number}", "1")
        cache.forget(get_entry(cache, f"j{number}"))
        put(cache, a_pod(f"j{number}-master-0"), a_pod(f"j{number}-worker-0"))
    return cache


def test_entry_of_a_deleted_job_is_removed_with_its_last_pod():
    cache = outlived(10)
    for role, left in (("master", 10), ("worker", 0)):
        for number in range(10):
            drop(cache, Pod, f"j{number}-{role}-0", "p")
        assert len(cache) == left


def test_entry_of_a_deleted_job_is_removed_if_no_list_has_its_pods():
    cache = outlived(3)
    put(cache, Event(reason="Killing", name="j0-worker-0"))
    relist(cache, Pod, a_pod("j1-worker-0"))
    assert list_jobs(cache) == ["j0", "j1"]
    relist(cache, Event)
    assert list_jobs(cache) == ["j1"]


def test_job_received_after_its_pods_has_the_remaining_pods():
    cache = a_cache(a_pod("a-master-0"), a_pod("b-master-0"))
    drop(cache, Pod, "a-master-0", "that of an earlier pod")
    drop(cache, Pod, "b-master-0", "p")
    put(cache, Job(name="a", uid="j"), Job(name="b", uid="j"))
    assert (list_pods(cache, "a"), list_pods(cache, "b")) == (["a-master-0"], [])
    drop(cache, Pod, "a-master-0", "p")
    assert list_jobs(cache) == ["a", "b"]


def test_deleted_job_is_kept_without_its_pods():
    cache = a_cache(Job(name="j", uid="1"), a_pod("j-master-0"))
    drop(cache, Job, "j", "1")
    drop(cache, Pod, "j-master-0", "p")
    assert (get_entry(cache).gone, list_pods(cache)) == (NOW, [])
    never = cache.add_missing_job(("ns", "never"), "s3://b")
    put(cache, a_pod("never-master-0"))
    drop(cache, Pod, "never-master-0", "p")
    assert cache.get(never.key) is never


def test_preemption_survives_the_routine_events_of_a_large_job():
    reasons = ("Preempted", "Killing", *["SuccessfulDeletePod", "SuccessfulCreatePod", "Started"] * 100)
    events = (Event(kind="Pod", name="j-worker-0", reason=reason) for reason in reasons)
    kept = list_events(a_cache(Job(name="j"), *events))
    assert (kept[0], len(kept), kept[-1]) == ("Preempted", 50, "Started")


def test_events_of_a_job_are_limited():
    cache = a_cache(Job(name="j"), *(Event(reason=str(number), name="j") for number in range(200)))
    assert [int(reason) for reason in list_events(cache)] == [*range(150, 200)]
    cache.forget(get_entry(cache))
    assert len(cache) == 0


def test_relist_removes_missing_objects_and_notifies_listeners():
    cache = a_cache()
    for name in ("j", "k"):
        put(cache, Job(name=name), PodGroup(kind="PodGroup", name=name))
        get_entry(cache, name).accompanied = True
    put(cache, a_pod("j-worker-0"), Event(reason="Old", name="j"))
    before = get_entry(cache).version
    relist(cache, Pod)
    relist(cache, PodGroup, PodGroup(kind="PodGroup", name="k"))
    relist(cache, Event, Event(reason="New", name="j"))
    entry = get_entry(cache)
    assert (entry.pods, entry.pod_groups, list_events(cache)) == ((), (), ["New"])
    # A missing companion counts as deleted, so companions are checked again, which is a change too.
    assert entry.version == before + 4
    assert (entry.accompanied, get_entry(cache, "k").accompanied) == (False, True)


def test_relist_notifies_only_about_differences():
    cache, notified = a_cache(), list[str]()
    pods = [a_pod(name) for name in ("a-worker-0", "a-worker-1", "b-worker-0")]
    relist(cache, Pod, *pods)
    cache.listen(lambda entry: notified.append(entry.name))
    relist(cache, Pod, *pods)
    assert notified == []
    relist(cache, Pod, *pods[1:])
    assert notified == ["a"]


def test_confirmation_of_a_missing_job_is_a_change():
    cache = a_cache(Job(name="j"))
    relist(cache, Job)
    assert get_entry(cache).unconfirmed
    put(cache, Job(name="j"))
    assert not get_entry(cache).unconfirmed
    cache.mark_deleted(get_entry(cache))
    put(cache, Job(name="j"))
    assert (get_entry(cache).gone, get_entry(cache).version) == (None, 5)


def test_changed_pod_keeps_its_position():
    cache = a_cache(*(a_pod(f"j-worker-{index}") for index in range(3)))
    first, _, last = get_entry(cache).pods
    changed = a_pod("j-worker-1", phase="Running")
    put(cache, changed)
    assert get_entry(cache).pods == (first, changed, last)
    assert get_entry(cache).pods[0] is first


def test_equal_parts_of_jobs_are_shared():
    cache = a_cache()
    for number in range(2):
        run = a_run(execution=f"f{number}", output_prefix=f"s3://b/f{number}/n0/data/0")
        annotation = task_annotation.encode(run, Deadlines(), {})
        metadata = {"name": f"j{number}", "annotations": {task_annotation.ANNOTATION: annotation}}
        put(cache, read_job(json.loads(json.dumps({"metadata": metadata}))))
    one, other = (get_entry(cache, name) for name in ("j0", "j1"))
    assert one.origin.run.project is other.origin.run.project
    assert one.origin.run.labels is other.origin.run.labels
    assert next(iter(one.job.annotations)) is next(iter(other.job.annotations))


def attempt(number, node="n0", namespace="ns"):
    return a_run(output_prefix=f"s3://b/p-d-e-{node}/data/{number}", namespace=namespace, attempt=number)


def job_of(run, uid="1"):
    annotations = {
        task_annotation.ANNOTATION: task_annotation.encode(run, Deadlines(), {}),
        names.OUTPUT_PREFIX: run.output_prefix,
    }
    return Job(name=f"j{run.attempt}", uid=uid, annotations=annotations)


def list_attempts(cache, run):
    return [entry.name for entry in cache.get_attempts(run)]


def test_attempts_of_a_flyte_node_are_found_by_any_of_them():
    jobs = [job_of(attempt(number)) for number in range(2)]
    cache = a_cache(*jobs, *jobs, job_of(attempt(2, node="n1")), Job(name="nobodys"))
    put(cache, job_of(attempt(3, namespace="other")), namespace="other")
    assert list_attempts(cache, attempt(7)) == ["j0", "j1"]
    assert list_attempts(cache, attempt(7, node="n2")) == []


def test_forgotten_or_replaced_attempts_are_not_found():
    cache = a_cache(*(job_of(attempt(number)) for number in range(3)))
    cache.forget(get_entry(cache, "j0"))
    put(cache, Job(name="j1", uid="another"), job_of(attempt(2), uid="another"))
    assert list_attempts(cache, attempt(7)) == ["j2"]
    put(cache, Job(name="j2", uid="another"))
    assert list_attempts(cache, attempt(7)) == []


def test_events_of_placeholder_pods_are_assigned_to_the_job():
    event = Event(reason="Informational", name="tg-j-worker-x")
    cache = a_cache(Job(name="j"), Pod(name=event.name, job_name="j", place="worker"), event)
    put(cache, event, namespace="elsewhere")
    assert list_events(cache) == ["Informational"]
    drop(cache, Pod, event.name)
    assert list_pods(cache) == []
    put(cache, Event(reason="TaskCompleted", name=event.name))
    assert list_events(cache) == ["Informational"]
    relist(cache, Pod, Pod(name="tg-j-worker-y", job_name="j", place="worker"))
    put(cache, Event(reason="Informational", name="tg-j-worker-y"))
    assert list_events(cache) == ["Informational"] * 2


def test_only_the_deleted_object_of_several_with_one_name_is_removed():
    cache = a_cache(Job(name="j"), PodGroup(kind="Workload", api="kueue.x-k8s.io", name="j", uid="w"))
    for api, uid in (("scheduling.x-k8s.io", "a"), ("scheduling.volcano.sh", "b")):
        put(cache, PodGroup(kind="PodGroup", api=api, name="j", uid=uid))
    assert [group.uid for group in get_entry(cache).pod_groups] == ["w", "a", "b"]
    # A new group of the same name has another uid, so the second deletion has no effect.
    for _ in range(2):
        drop(cache, PodGroup, "j", "a")
        assert [group.uid for group in get_entry(cache).pod_groups] == ["w", "b"]
    drop(cache, PodGroup, "j")
    assert get_entry(cache).pod_groups == ()


def workload(uid, second=0, *conditions, **fields):
    created = NOW + timedelta(seconds=second)
    given = {"name": uid, "uid": uid, "queue": "team", "created": created, "conditions": conditions}
    return PodGroup(kind="Workload", api="kueue.x-k8s.io", **{**given, **fields})  # type: ignore[arg-type]


def standing(*groups):
    found = QueuePositions()
    for group in groups:
        found.put_group("ns", group)
    return found


OURS = workload("ours", 5)


def test_jobs_with_higher_priority_or_earlier_creation_are_ahead():
    others = workload("early", 1), workload("late", 7), workload("low", 0, priority=-1)
    assert standing(OURS, workload("high", 9, priority=1), *others).with_position(OURS).ahead == 2


def test_job_in_another_queue_or_already_admitted_is_not_ahead():
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


def test_pod_group_without_a_kueue_queue_has_no_position():
    group = PodGroup(kind="PodGroup", api="scheduling.volcano.sh", name="j", uid="g", queue="team")
    assert standing(group).with_position(group) == group


def test_position_in_a_very_long_queue_is_unknown(monkeypatch):
    # Fill the queue with two groups instead of ten thousand.
    monkeypatch.setattr(queue_positions, "_LONGEST", 2)
    found = standing(workload("a", 1), workload("b", 2), OURS)
    assert found.with_position(OURS).ahead is None
    assert found.with_position(workload("b", 2)).ahead is None


def test_job_has_a_queue_position_and_no_foreign_workloads():
    cache = a_cache(Job(name="j"), Job(name="theirs"))
    relist(cache, PodGroup, workload("u", 5, name="j"), workload("theirs", 1, foreign=True))
    entry = get_entry(cache)
    assert [group.ahead for group in entry.get_observed_state().pod_groups] == [1]
    assert get_entry(cache, "theirs").get_observed_state().pod_groups == ()
    drop(cache, PodGroup, "theirs", "theirs")
    assert [group.ahead for group in entry.get_observed_state().pod_groups] == [0]
    relist(cache, PodGroup)
    put(cache, workload("late", 9, foreign=True))
    assert entry.get_observed_state().pod_groups == ()
