"""The object store: durability, versions and the lock of a server; and the events of the event recorder."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from kept_objects import AT_ONCE, BEGAN, Clock, job, pod

from backend_plugin.embedded.events import KUBELET, EventRecorder
from backend_plugin.embedded.objects import Key, build_event_body, format_time, get_key, get_uid
from backend_plugin.embedded.state_lock import StateUnusable
from backend_plugin.embedded.store import ObjectChange, Store
from backend_plugin.shell.cluster import AlreadyExists, ClusterUnavailable, VersionConflict

POD = Key("Pod", "a", "p")
STARTED = build_event_body(KUBELET, "Started", "Started container pytorch")
BACK_OFF = build_event_body(KUBELET, "BackOff", "Back-off", warning=True)


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(state, clock):
    store = Store.open(state, clock)
    yield store
    store.close()


def version(manifest):
    return int(manifest["metadata"]["resourceVersion"])


def list_names(manifests):
    return [each["metadata"]["name"] for each in manifests]


def test_object_name_is_unique_in_a_namespace(store):
    for make, message in ((pod, 'pods "p"'), (job, r'pytorchjobs\.kubeflow\.org "j"')):
        store.create(make())
        with pytest.raises(AlreadyExists, match=f"^{message} already exists$"):
            store.create(make())
    elsewhere = {**pod(), "metadata": {**pod()["metadata"], "namespace": "b"}}
    assert get_key(store.create(elsewhere)) == Key("Pod", "b", "p")


def test_only_the_latest_version_can_be_updated(store):
    changes = []
    old = store.create(pod())
    store.watch(changes.append)
    assert store.update({**old}) is old
    assert changes == []  # Nothing was changed.
    new = store.update({**old, "status": {"phase": "Running"}})
    with pytest.raises(VersionConflict, match="the object has been modified"):
        store.update({**old, "status": {"phase": "Failed"}})
    assert store.get(POD) is new


def test_deleted_object_cannot_be_updated(store):
    old = store.create(pod())
    assert store.remove(get_uid(old)) == old
    with pytest.raises(VersionConflict):
        store.update(old)
    assert store.remove(get_uid(old)) is None
    # A new object of this name has another uid.
    assert get_uid(store.create(pod())) != get_uid(old)
    assert store.get_by_uid(get_uid(old)) is None
    with pytest.raises(VersionConflict):
        store.update(old)


def test_generation_counts_spec_changes_and_resource_version_counts_all_changes(store):
    first = store.create(job(runPolicy={}))
    status = store.update({**first, "status": {"startTime": AT_ONCE}})
    suspended = store.update({**status, "spec": {"runPolicy": {"suspend": True}}})
    assert [each["metadata"]["generation"] for each in (first, status, suspended)] == [1, 1, 2]
    assert version(first) < version(status) < version(suspended)


def test_owned_objects_are_listed_in_creation_order(store):
    pods = [store.create(pod(name, owner="u")) for name in ("c", "a", "b")]
    store.create(pod("other", owner="v"))
    store.update({**pods[0], "status": {"phase": "Running"}})
    assert list_names(store.list_owned("u", "Pod")) == ["c", "a", "b"]
    for each in store.list_owned("u", "Pod"):
        store.remove(get_uid(each))
    assert store.list_owned("u", "Pod") == []
    assert store.list_owners() == ("v",)


def test_watchers_receive_changes_in_order_including_those_of_other_watchers(store):
    changes = []

    def finishes(change):
        if change.old is None and change.new is not None:
            store.update({**change.new, "status": {"phase": "Running"}})

    store.watch(finishes)
    unwatch = store.watch(changes.append)
    first = store.create(pod())
    second = store.get(POD)
    store.remove(get_uid(first))
    unwatch()
    store.create(pod())
    versions = ((None, first), (first, second), (second, None))
    assert changes == [ObjectChange(key=POD, old=old, new=new) for old, new in versions]
    assert second["status"] == {"phase": "Running"}


def test_state_of_a_later_release_is_rejected(state):
    Store.open(state).close()
    with closing(sqlite3.connect(state / "objects.sqlite")) as file:
        file.execute("PRAGMA user_version = 99")
    for _ in "twice":  # The first attempt must release the lock.
        with pytest.raises(StateUnusable, match=r"written by a later release \(schema 99,"):
            Store.open(state)


def test_change_that_cannot_be_written_has_no_effect(store, state):
    old = store.create(pod())
    store._execute("PRAGMA query_only = 1")
    with pytest.raises(ClusterUnavailable, match="the cluster's state cannot be written: attempt to write"):
        store.update({**old, "status": {"phase": "Running"}})
    with pytest.raises(ClusterUnavailable):
        store.remove(get_uid(old))
    assert store.list_objects("Pod") == [old]
    store._execute("PRAGMA query_only = 0")
    assert store.update({**old, "status": {"phase": "Running"}})["status"] == {"phase": "Running"}


def test_full_disk_error_does_not_suggest_to_discard_the_state(state):
    Store.open(state).close()
    program = (
        "import resource, sys\nfrom pathlib import Path\nfrom backend_plugin.embedded.store import Store\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "(Path(sys.argv[1]) / 'lock').touch()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\n"
        "Store.open(Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, state]
    errors = subprocess.run(command, check=False, capture_output=True, text=True).stderr
    assert "StateUnusable" in errors
    assert ("that the disk has space" in errors, "move it away" in errors) == (True, False)


def test_watchers_receive_a_transaction_after_it_is_written(store):
    names = []
    store.watch(lambda change: names.append(change.key.name))
    with store.transaction():
        first = store.create(pod("one"))
        store.create(pod("two"))
        store.remove(get_uid(first))
        assert names == []
    assert names == ["one", "two", "one"]
    assert list_names(store.list_objects("Pod")) == ["two"]


def test_transaction_that_cannot_be_written_has_no_effect(store, state):
    kept = [store.create(pod("one")), store.create(pod("two"))]
    changes = []
    store.watch(changes.append)

    def change():
        with store.transaction():
            store.remove(get_uid(kept[0]))
            store.create(pod("three", owner="u"))
            store._execute("PRAGMA query_only = 1")
            store.update({**kept[1], "status": {"phase": "Running"}})

    with pytest.raises(ClusterUnavailable):
        change()
    store._execute("PRAGMA query_only = 0")
    assert (store.list_objects("Pod"), list(store.list_owners()), changes) == (kept, [], [])
    store.close()
    with closing(Store.open(state, Clock())) as again:
        assert again.list_objects("Pod") == kept
        assert version(again.create(pod("four"))) > version(kept[1])


# ---- damage


def write_in_another_process(state, code):
    """Run code with a `store` and kill the process, so that its write-ahead log remains."""
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom backend_plugin.embedded.store import Store\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom kept_objects import pod\n"
        f"store = Store.open(Path(sys.argv[1]))\n{code}\nos.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program, state], check=False).returncode == -signal.SIGKILL


def test_only_committed_changes_survive_a_killed_process(state):
    write_in_another_process(
        state,
        "kept = store.create(pod())\n"
        "with store.transaction(): store.create(pod('q')); store.create(pod('r'))\n"
        "store.remove(kept['metadata']['uid'])\n"
        "with store.transaction():\n    store.create(pod('s'))\n    os.kill(os.getpid(), 9)",
    )
    with closing(Store.open(state)) as store:
        assert list_names(store.list_objects("Pod")) == ["q", "r"]


def write_text(file):
    file.write_text("no database at all, but long enough to be looked at" * 100)


def damage_the_index(file):
    with closing(sqlite3.connect(file)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE type = 'index'").fetchone()
    data = bytearray(file.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = bytes(4096)
    file.write_bytes(data)


def damage_an_object(file):
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE objects SET body = ?", (b'{"kind": 7}',))


@pytest.mark.parametrize("damage", [write_text, damage_the_index, damage_an_object])
def test_damaged_file_error_contains_a_remedy(state, damage):
    with closing(Store.open(state, Clock())) as store:
        for number in range(120):
            store.create(pod(f"p-{number}"))
    damage(state / "objects.sqlite")
    with pytest.raises(StateUnusable, match=r"objects\.sqlite: .*; move it away to start with an empty"):
        Store.open(state)


# ---- events


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
        "reportingComponent": "kubelet",
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
