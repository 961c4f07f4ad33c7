"""Events on the job report that it waits again or runs again: once each, also with several servers."""

import asyncio
import threading

import pytest
from kube_server import Fault
from kube_world import (
    EVENTS,
    POD_GROUPS,
    WITH_POD_GROUPS,
    Playing,
    connected,
    create_running_job,
    event,
    opened,
    options,
)
from scripted_cluster import ago
from serving import NAMESPACE, serving, wait_until

from backend_plugin.core.judging import verdict_annotation
from backend_plugin.core.judging.job_events import JobEventReason
from backend_plugin.core.judging.verdict import Phase
from backend_plugin.core.observed import Job
from backend_plugin.shell import reconciler


def reasons(server):
    return [each["reason"] for each in server.list_objects("events")]


def list_reasons(entry):
    return [each.reason for each in entry.events]


def posts(server):
    return sum(each.startswith("POST") and each.endswith("/events") for each in server.requests)


async def turned(server, here):
    play, meta = await create_running_job(server, here)
    play.loses()
    return play, meta


async def test_event_is_written_once_by_several_servers(server, tmp_path):
    settings = options(server, tmp_path, request_timeout=2.0)
    async with (
        opened(settings) as first,
        opened(settings) as second,
        serving(tmp_path, first) as one,
        serving(tmp_path, second) as other,
    ):
        await wait_until(lambda: one.cache.ready.is_set() and other.cache.ready.is_set())
        play, meta = await turned(server, one)
        await wait_until(lambda: reasons(server) == ["WaitingForResources"])
        (event,) = server.list_objects("events")
        line = (await one.get(meta)).message.partition("\n")[0]
        assert (event["message"], event["type"]) == (line, "Warning")
        assert line.startswith("worker-0 waiting for a node: no node of 4 fits")
        about = event["involvedObject"]
        assert (about["name"], about["uid"]) == (play.name, play.job["metadata"]["uid"])
        assert await one.phase(meta) == "RUNNING"
        # Both servers have processed the change.
        entries = [*one.cache, *other.cache]
        await wait_until(lambda: [entry.last_event_reason for entry in entries] == [JobEventReason.WAITS] * 2)
    written = posts(server)
    async with connected(server, tmp_path) as here:
        await wait_until(lambda: any(entry.last_event_reason for entry in here.cache))
        await asyncio.sleep(0.3)
        assert posts(server) == written
        Playing(server).pod("worker-0", created=10)
        await wait_until(lambda: "Resumed" in reasons(server))
        assert sorted(reasons(server)) == ["Resumed", "WaitingForResources"]
        # The next wait is a new event.
        Playing(server).waits(created=0)
        await wait_until(lambda: len(reasons(server)) == 3)
        assert sorted(reasons(server))[1:] == ["WaitingForResources"] * 2


async def test_missing_event_permission_is_reported_and_the_job_continues(server, here, caplog):
    server.forbidden.add("create events")
    play, meta = await turned(server, here)
    await wait_until(lambda: posts(server) == 1)
    await wait_until(lambda: len(here.orders) == 0)
    assert "waiting for a node" in (await here.get(meta)).message
    # The event is written with the next change after the permission was granted.
    server.forbidden.clear()
    play.pod("worker-0", created=10)
    await wait_until(lambda: all(entry.last_event_reason is JobEventReason.RUNS for entry in here.cache))
    play.waits(created=-5)
    await wait_until(lambda: reasons(server) == ["WaitingForResources"])
    assert '{apiGroups: [""], resources: [events], verbs: [create]}' in caplog.text


async def test_earlier_wait_event_is_kept_among_many_other_events(server, here):
    play, _ = await turned(server, here)
    # Wait for the event to arrive, because other events use a different watch.
    await wait_until(lambda: all("WaitingForResources" in list_reasons(entry) for entry in here.cache))
    for number in range(60):
        server.apply(EVENTS, event(f"Other{number}", name=f"{play.name}-master-0", namespace=NAMESPACE))
    await wait_until(lambda: all(len(entry.events) > 50 for entry in here.cache))
    play.pod("worker-0", created=10)
    await wait_until(lambda: "Resumed" in reasons(server))


async def test_calls_do_not_wait_for_a_delayed_event_before_the_resumed_event(server, here):
    answered = threading.Event()
    server.faults.append(Fault(method="POST", path="/events", times=1_000, held=answered, reset="before"))
    play, meta = await turned(server, here)
    await wait_until(lambda: posts(server) > 0)
    assert await here.phase(meta) == "RUNNING"
    play.pod("worker-0", created=10)
    await wait_until(lambda: all(entry.last_event_reason is JobEventReason.RUNS for entry in here.cache))
    assert reasons(server) == []
    server.faults.clear()
    answered.set()
    await wait_until(lambda: len(reasons(server)) == 2)
    assert sorted(reasons(server)) == ["Resumed", "WaitingForResources"]


async def test_event_rejected_in_a_terminating_namespace_is_not_retried(server, here, caplog):
    play, _ = await create_running_job(server, here)
    server.objects.namespaces[NAMESPACE] = "Terminating"
    with caplog.at_level("INFO"):
        play.loses()
        await wait_until(lambda: posts(server) == 1)
        await wait_until(lambda: len(here.orders) == 0)
    await asyncio.sleep(0.5)
    assert posts(server) == 1
    assert "the cluster rejected an event of the job (403 Forbidden): unable to create" in caplog.text
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_existing_event_is_not_changed(server, cluster):
    await cluster.record_event(event("Turned", message="first"))
    await cluster.record_event(event("Turned", message="second"))
    await cluster.record_event({**event("Turned"), "metadata": {"name": "e", "namespace": "../ns"}})
    assert [each["message"] for each in server.list_objects("events")] == ["first"]
    assert posts(server) == 2


async def create_logged_job(server, here):
    """Create a job that runs, and return when the server has checked it."""
    play, _ = await create_running_job(server, here)
    (entry,) = here.cache
    await wait_until(lambda: entry.logged_phase is Phase.RUNNING)
    return play, entry


@pytest.fixture
def rare_checks(monkeypatch):
    """Prevent periodic checks of jobs by a server that starts after this fixture."""
    monkeypatch.setattr(reconciler, "_PAUSE", 60.0)


@pytest.mark.usefixtures("rare_checks")
async def test_missing_job_or_late_wait_event_is_processed_immediately_while_pods_run(server, here):
    play, entry = await create_logged_job(server, here)
    here.cache.replace_records(Job, [])
    assert entry.unconfirmed
    await wait_until(lambda: not entry.unconfirmed, seconds=50)
    play.pod("worker-0", created=90)
    await wait_until(lambda: entry.undisturbed != ())
    about = {"kind": "PyTorchJob", "name": play.name, "namespace": NAMESPACE}  # An event of another server.
    server.apply(EVENTS, event("WaitingForResources", **about, lastTimestamp=ago(0)))
    await wait_until(lambda: "Resumed" in reasons(server), seconds=50)


@pytest.mark.usefixtures("rare_checks")
async def test_pod_group_is_recreated_immediately_while_pods_run(server, tmp_path):
    server.groups[POD_GROUPS[0]] = {POD_GROUPS[1]: "v1alpha1"}
    async with connected(server, tmp_path, WITH_POD_GROUPS) as here:
        play, entry = await create_logged_job(server, here)
        assert len(entry.pod_groups) == 1
        server.remove(POD_GROUPS, play.name, NAMESPACE)
        await wait_until(lambda: len(server.list_objects(POD_GROUPS[1])) == 1, seconds=50)


# ---- a job fails while the watch of its pods sends no data


ANNOTATION = verdict_annotation.ANNOTATION


async def wait_for_end(here, meta):
    """Return the first phase after RUNNING, when the verdict has been stored."""
    while (phase := await here.phase(meta)) == "RUNNING":
        await asyncio.sleep(0.05)
    await wait_until(lambda: len(here.orders) == 0)
    return phase


def get_annotations(server):
    (job,) = server.list_objects("pytorchjobs")
    return job["metadata"]["annotations"]


def fails(play):
    """Fail a worker with `sys.exit(3)`, which writes no error file."""
    state = {"terminated": {"exitCode": 3, "reason": "Error", "startedAt": ago(30), "finishedAt": ago(8)}}
    play.pod("worker-0", phase="Failed", containerStatuses=[{"name": "pytorch", "state": state}])
    play.becomes("Failed", 7)  # Long enough ago that the server does not wait for changes of pods.


async def test_pods_of_a_failed_job_are_listed_once_and_the_verdict_is_final(server, here):
    play, meta = await create_running_job(server, here)
    server.muted.add("pods")
    fails(play)
    assert await wait_for_end(here, meta) == "FAILED"
    assert "worker-0 failed: exit code 3" in (await here.get(meta)).message
    # GetTask may return the verdict before the server has begun to write it.
    await wait_until(lambda: ANNOTATION in get_annotations(server))
    written = verdict_annotation.read(get_annotations(server)[ANNOTATION])
    assert (written.retry, written.reason) == (False, "ExitCode")
    assert server.requests.count(f"GET /api/v1/namespaces/{NAMESPACE}/pods") == 1


async def test_failed_pod_list_is_retried_before_a_verdict_is_reported(server, here, caplog):
    fault = Fault(path=f"{NAMESPACE}/pods", times=1_000, code=503)
    play, meta = await create_running_job(server, here)
    server.muted.add("pods")
    server.faults.append(fault)
    fails(play)
    await wait_until(lambda: "retrying in" in caplog.text)
    assert (await here.get(meta)).message == "the job has ended; its remaining state is being read"
    fault.times = 0
    assert await wait_for_end(here, meta) == "FAILED"
