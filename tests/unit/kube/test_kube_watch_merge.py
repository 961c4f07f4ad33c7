"""Results of several reflectors reach the sink as one list, followed by changes."""

from datetime import datetime, timezone

from backend_plugin.core.observed import Event, Job, Pod
from backend_plugin.kube.watch_merge import MergedKind, WatchedObject
from backend_plugin.shell.cluster import ObjectName


class RecordingSink:
    def __init__(self):
        self.calls = []

    def replace_records(self, kind, records):
        self.calls.append(["all", *(record.name for _, record in records)])

    def put_record(self, namespace, record):
        self.calls.append(["put", record.name])

    def drop_record(self, kind, name):
        self.calls.append(["drop", name])


def a_pod(name, version="1"):
    return WatchedObject("ns", name, f"uid-{name}", version, Pod(name=name))


def an_event(name, second, version):
    at = datetime(2026, 1, 1, 0, 0, second, tzinfo=timezone.utc)
    return WatchedObject("ns", name, f"uid-{name}", version, Event(reason="r", name=name, at=at))


def gathered(record, parts):
    sink = RecordingSink()
    gathering = MergedKind(sink, record)
    return sink, gathering, [gathering.add_part() for _ in range(parts)]


def test_single_part_is_forwarded_immediately_and_keeps_nothing():
    sink, gathering, (part,) = gathered(Pod, 1)
    part.replace_records([a_pod("a")])
    part.apply_change(a_pod("b", "2"))
    part.apply_deletion(a_pod("a", "3"))
    gone = ObjectName(namespace="ns", name="a", uid="uid-a")
    assert sink.calls == [["all", "a"], ["put", "b"], ["drop", gone]]
    assert gathering.complete.is_set()
    assert part.kept == {}


def test_list_of_one_part_keeps_objects_of_the_other():
    sink, _, (one, other) = gathered(Pod, 2)
    one.replace_records([a_pod("a")])
    one.apply_change(a_pod("b", "2"))
    one.apply_deletion(a_pod("a", "3"))
    assert sink.calls == []
    other.replace_records([a_pod("c")])
    one.replace_records([a_pod("d")])
    assert sink.calls == [["all", "b", "c"], ["all", "d", "c"]]


def test_unavailable_part_neither_delays_others_nor_removes_objects():
    sink, _, (one, other) = gathered(Pod, 2)
    one.replace_records([a_pod("a")])
    other.mark_unavailable(permitted=True)
    assert sink.calls == [["all", "a"]]
    one.mark_unavailable(permitted=False)
    assert sink.calls == [["all", "a"]]


def test_forbidden_job_watches_do_not_mean_an_empty_list():
    sink, gathering, (one, other) = gathered(Job, 2)
    one.mark_unavailable(permitted=False)
    other.mark_unavailable(permitted=False)
    other.mark_unavailable(permitted=True)  # A kind that is not served does not replace the forbidden one.
    assert not gathering.complete.is_set()
    one.replace_records([])
    assert sink.calls == [["all"]]


def test_cluster_without_any_job_kind_has_an_empty_list_of_jobs():
    sink, _, (one, other) = gathered(Job, 2)
    one.mark_unavailable(permitted=False)
    other.mark_unavailable(permitted=True)
    one.mark_unavailable(permitted=True)
    assert sink.calls == [["all"]]


def test_events_arrive_in_order_and_only_once():
    sink, _, (one, other) = gathered(Event, 2)
    one.replace_records([an_event("late", 9, "3"), an_event("early", 1, "4")])
    other.replace_records([an_event("between", 5, "1")])
    one.replace_records([an_event("early", 1, "4"), an_event("newest", 8, "7"), an_event("new", 7, "6")])
    one.apply_deletion(an_event("early", 1, "8"))
    assert sink.calls == [["all", "early", "between", "late"], ["put", "new"], ["put", "newest"]]


def test_foreign_objects_are_not_forwarded():
    sink, _, (part,) = gathered(Event, 1)
    stranger = WatchedObject("ns", "", "u", "1", None)
    part.replace_records([stranger])
    part.apply_change(stranger)
    part.apply_deletion(stranger)
    assert sink.calls == [["all"]]
