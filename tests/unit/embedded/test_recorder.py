"""The event recorder: equal events and expiry."""

from datetime import timedelta

import pytest
from kept_objects import AT_ONCE, BEGAN, Clock, pod

from backend_plugin.embedded.events import KUBELET, EventRecorder, build_body
from backend_plugin.embedded.objects import format_time, get_uid
from backend_plugin.embedded.store import Store

STARTED = build_body(KUBELET, "Started", "Started container pytorch")
BACK_OFF = build_body(KUBELET, "BackOff", "Back-off", warning=True)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    store = Store.open(tmp_path, clock)
    yield store
    store.close()


def list_events(store):
    return [(each["reason"], each["message"], each["count"]) for each in store.list_objects("Event")]


def test_event_has_source_reason_and_involved_object(store):
    about = store.create(pod())
    EventRecorder(store).record(about, BACK_OFF)
    (event,) = store.list_objects("Event")
    labels = {"training.kubeflow.org/job-name": "j"}
    metadata = {"namespace": "a", "labels": labels, "creationTimestamp": AT_ONCE}
    reference = {"apiVersion": "v1", "kind": "Pod", "namespace": "a", "name": "p", "uid": get_uid(about)}
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {**event["metadata"], **metadata},
        "involvedObject": reference,
        "reason": "BackOff",
        "message": "Back-off",
        "type": "Warning",
        "source": {"component": "kubelet"},
        "firstTimestamp": AT_ONCE,
        "lastTimestamp": AT_ONCE,
        "count": 1,
    }


def test_equal_event_is_counted_also_after_a_server_restart(store, clock):
    about, other = (store.create(pod(name)) for name in ("p", "q"))
    EventRecorder(store).record(about, STARTED)
    clock.advance(60)
    EventRecorder(store).record(about, STARTED)
    EventRecorder(store).record(other, STARTED)
    later = format_time(BEGAN + timedelta(seconds=60))
    assert [
        (each["involvedObject"]["name"], each["count"], each["firstTimestamp"], each["lastTimestamp"])
        for each in store.list_objects("Event")
    ] == [("p", 2, AT_ONCE, later), ("q", 1, later, later)]


def test_events_are_deleted_after_their_maximum_age(store, clock):
    about = store.create(pod())
    keeping = EventRecorder(store)
    keeping.record(about, STARTED)
    clock.advance(3000)
    keeping.record(about, BACK_OFF)
    clock.advance(601)
    keeping.expire()
    assert list_events(store) == [("BackOff", "Back-off", 1)]
    clock.advance(3000)
    keeping.expire()
    assert list_events(store) == []
    keeping.record(about, STARTED)
    assert list_events(store) == [("Started", "Started container pytorch", 1)]
