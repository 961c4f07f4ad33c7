"""Records are complete and correct despite failures of lists and watches."""

import asyncio
import contextlib
import json
import logging

import grpc
import pytest
from kube_objects import expired
from kube_server import Fault
from kube_world import EVENTS, IDENTITY, JOBS, NAME, PODS, event, following, job, opened, options, pod
from kubernetes_messages import frame, wrapped
from serving import serving, wait_until
from tiny_service import code_of

from backend_plugin.core.job_lookup import JobNotFound
from backend_plugin.core.observed import Pod, PodGroup
from backend_plugin.shell import connector_service, job_service
from backend_plugin.shell.cluster import ClusterUnavailable
from kfpytorch_idl.kubernetes import pods_pb2
from kfpytorch_idl.kubernetes.envelope_pb2 import TypeMeta, Unknown
from kfpytorch_idl.v1 import job_service_pb2 as wire

REPLICA = f"{NAME}-master-0"
OTHER = "f2-n0-0-0123456789ab"
AS_JSON = {"Content-Type": "application/json"}
WORKLOADS = ("kueue.x-k8s.io", "workloads")


@contextlib.asynccontextmanager
async def followed(server, tmp_path, **settings):
    async with opened(options(server, tmp_path, **settings)) as cluster, following(cluster) as heard:
        yield heard


@pytest.mark.parametrize("protobuf", [True, False])
async def test_existing_objects_are_reported_and_then_each_change(server, tmp_path, protobuf):
    server.protobuf = protobuf
    server.apply(JOBS, job())
    server.apply(PODS, pod())
    server.apply(PODS, {**pod("stranger"), "metadata": {"name": "stranger"}})
    server.apply(EVENTS, event("Scheduled"))
    server.apply(EVENTS, event("Pulling", name="stranger"))
    async with followed(server, tmp_path) as heard:
        assert sorted(heard.replaced) == ["Event", "Job", "Pod", "PodGroup"]
        assert (heard.names(), heard.names(Pod), heard.events) == ([NAME], [REPLICA], ["Scheduled"])
        server.apply(PODS, pod(phase="Running"))
        server.apply(EVENTS, event("Started"))
        server.apply(JOBS, job(OTHER))
        await wait_until(lambda: heard.there["Pod"]["ns", REPLICA].phase == "Running")
        await wait_until(lambda: heard.events == ["Scheduled", "Started"] and heard.names() == [NAME, OTHER])
        server.remove(JOBS, NAME)
        await wait_until(lambda: heard.names() == [OTHER])
        assert heard.dropped[-1].uid
        server.remove(PODS, REPLICA)
        await wait_until(lambda: heard.names(Pod) == [])
        assert heard.replaced.count("Pod") == 1


async def test_list_that_expires_between_pages_is_restarted(server, tmp_path):
    first, *others = [f"f{number}-n0-0-0123456789ab" for number in range(5)]
    for name in (first, *others):
        server.apply(JOBS, job(name))

    def change():
        server.objects.remove((*JOBS, "ns", first))
        server.objects.compact()

    server.faults += [Fault(path="pytorchjobs"), Fault(path="pytorchjobs", first=change)]
    async with followed(server, tmp_path, page=2) as heard:
        assert (heard.names(), heard.replaced.count("Job")) == (others, 1)


# A state that is not a valid message, in a page that is not the last one.
_BROKEN = pods_pb2.Pod(metadata={"name": b"p"}, status={"container_statuses": [{"state": b"\xff"}]})
_PAGE = pods_pb2.PodList(metadata={"resource_version": b"1", "rest": b"more"}, items=[_BROKEN])
UNREADABLE = Unknown(type_meta=TypeMeta(kind=b"PodList").SerializeToString(), raw=_PAGE.SerializeToString())


@pytest.mark.parametrize(
    ("path", "fault_options"),
    [
        ("/pods", {"code": 429, "headers": {"Retry-After": "1"}}),
        ("/pods", {"truncate": True}),
        ("/pods", {"code": 200, "body": b"[]"}),
        ("/pods", {"code": 200, "body": b"k8s\0" + UNREADABLE.SerializeToString()}),
        # The envelope contains the type of the object only.
        ("/pods", {"code": 200, "body": wrapped("PodList", {}).removesuffix(b"\x12\0")}),
        ("/pods", {"code": 403, "body": b"blocked by a proxy"}),
        ("/pods", {"code": 404, "body": b"no such page"}),
        ("pytorchjobs", {"truncate": True}),
        ("pytorchjobs", {"code": 200, "body": b"{}"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value)),
)
async def test_list_is_repeated_until_it_is_complete(server, tmp_path, path, fault_options):
    server.apply(JOBS, job())
    server.apply(JOBS, job(OTHER))
    server.apply(PODS, pod())
    server.apply(PODS, pod(f"{OTHER}-master-0"))
    server.faults.append(Fault(path=path, times=2, **fault_options))
    async with followed(server, tmp_path, page=1) as heard:
        assert (heard.names(), heard.names(Pod)) == ([NAME, OTHER], [REPLICA, f"{OTHER}-master-0"])
        assert heard.replaced.count("Job") == heard.replaced.count("Pod") == 1
        assert not any(fault.times for fault in server.faults)


EXPIRED = expired().status
ERROR_LINE = json.dumps({"type": "ERROR", "object": EXPIRED}).encode() + b"\n"
FAILED = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd"}
BROKEN_WATCHES = {
    "410": {"code": 410, "status": EXPIRED},
    "error 410": {"status": EXPIRED},
    "error 500": {"status": FAILED},
    "503": {"code": 503},
    "reset": {"reset": "before"},
    "truncated json": {"headers": AS_JSON, "body": b'{"type":"ADDED","object":{"metadata":{"na'},
    "error in json": {"headers": AS_JSON, "body": ERROR_LINE},
    "truncated": {"body": frame("ADDED", "Pod", pod(OTHER))[:-9]},
    "no pod": {"body": frame("ADDED", "Status", EXPIRED)},
    "ended at once": {},
}


@pytest.mark.parametrize("fault_options", BROKEN_WATCHES.values(), ids=BROKEN_WATCHES)
async def test_interrupted_watch_loses_no_change(server, tmp_path, fault_options):
    server.apply(PODS, pod())
    fault = Fault(path="/pods", watch=True, times=2, **fault_options)
    server.faults.append(fault)
    async with followed(server, tmp_path) as heard:
        server.apply(PODS, pod(phase="Running"))
        await wait_until(lambda: heard.there["Pod"]["ns", REPLICA].phase == "Running")
        await wait_until(lambda: fault.times == 0)  # A list may have delivered the change before.


async def test_pod_group_of_an_api_that_is_added_later_is_reported(server, tmp_path):
    server.apply(JOBS, job())
    about = {"name": "w", "namespace": "ns", "ownerReferences": [{"kind": "PyTorchJob", "name": NAME}]}
    server.apply(WORKLOADS, {"kind": "Workload", "metadata": about})
    async with followed(server, tmp_path) as heard:
        assert heard.names(PodGroup) == []
        server.groups["kueue.x-k8s.io"] = {"workloads": "v1beta2"}
        await wait_until(lambda: heard.names(PodGroup) == [NAME])
        assert heard.there["PodGroup"]["ns", NAME].kind == "Workload"
        server.remove(WORKLOADS, "w")
        await wait_until(lambda: heard.names(PodGroup) == [])


async def test_forbidden_kind_is_logged_once_and_does_not_delay_others(server, tmp_path, caplog):
    server.forbidden |= {"list events", "list pods"}
    server.apply(JOBS, job())
    server.apply(PODS, pod())
    async with followed(server, tmp_path) as heard:
        assert (heard.names(), heard.names(Pod)) == ([NAME], [])
        await wait_until(lambda: sum(each == "GET /api/v1/pods" for each in server.requests) >= 3)
        server.forbidden.clear()
        await wait_until(lambda: heard.names(Pod) == [REPLICA])
    messages = [record.message for record in caplog.records if "permission is missing" in record.message]
    assert len(messages) == 2
    rule = 'add to the ClusterRole: {apiGroups: [""], resources: [pods], verbs: [list, watch]}'
    assert any('cannot list resource "pods"' in each and rule in each for each in messages)


async def test_only_allowed_namespaces_are_watched(server, tmp_path):
    for name, namespace in ((NAME, "ns"), (OTHER, "other"), ("f3-n0-0-0123456789ab", "third")):
        labels = {IDENTITY: "x"}
        server.apply(JOBS, job(metadata={"name": name, "namespace": namespace, "labels": labels}))
    async with followed(server, tmp_path, namespaces=("ns", "other")) as heard:
        assert heard.names() == [NAME, OTHER]
        assert not [each for each in server.requests if each.endswith("kubeflow.org/v1/pytorchjobs")]
        server.do(lambda objects: objects.compact())
        server.cut()
        # A list of one namespace does not affect the other one.
        await wait_until(lambda: heard.replaced.count("Job") >= 3)
        assert heard.names() == [NAME, OTHER]


async def test_watch_statuses_and_errors_are_counted_per_kind(server, tmp_path):
    server.forbidden.add("list events")
    server.groups["kueue.x-k8s.io"] = {"workloads": "v1beta1"}
    failures = []
    async with opened(options(server, tmp_path, namespaces=("ns", "other"))) as cluster:
        cluster.watch_status.record_failure = failures.append
        async with following(cluster):
            counts = cluster.watch_status.count_watches
            await wait_until(lambda: counts().get(("workloads.kueue.x-k8s.io", "synced")) == 2)
            await wait_until(lambda: counts().get(("podgroups.scheduling.volcano.sh", "not_served")) == 2)
            await wait_until(lambda: counts().get(("events about a Pod", "forbidden")) == 2)
            assert {"Forbidden"} == set(failures)
            assert counts()["pods", "synced"] == 2
            server.stop()
            await wait_until(lambda: counts().get(("pods", "stale")) == 2)
            assert "ClusterUnavailable" in failures
            server.start()
            await wait_until(lambda: counts().get(("pods", "synced")) == 2)
            assert ("pods", "stale") not in counts()


async def test_watch_is_stale_after_two_silent_periods_until_it_receives_data(server, tmp_path, caplog):
    """A proxy may buffer the watch. A list then delivers the changes."""
    caplog.set_level(logging.INFO)
    server.muted = {"pods", "pytorchjobs", "events"}
    server.apply(JOBS, job())
    server.apply(PODS, pod())
    begun = []

    def count_lines(text):
        return sum(text in record.message for record in caplog.records)

    async with opened(options(server, tmp_path, silence=1.0)) as cluster:
        counts = cluster.watch_status.count_watches
        cluster.watch_status.record_failure = lambda word: begun.append(
            (word, sum(each.startswith("GET watch") for each in server.requests))
        )
        async with following(cluster) as heard:
            server.apply(PODS, pod(phase="Running"))
            await wait_until(lambda: counts().get(("pods", "stale")) == 1)
            # Watches of jobs, pods and three kinds of events, and one repeated watch.
            assert begun[0] >= ("StreamStalled", 6)
            assert heard.there["Pod"]["ns", REPLICA].phase == "Pending"
            await wait_until(lambda: heard.there["Pod"]["ns", REPLICA].phase == "Running")
            await asyncio.sleep(0.1)
            assert (counts()["pods", "stale"], counts()["events about a Pod", "synced"]) == (1, 1)
            server.muted.clear()
            server.apply(PODS, pod(phase="Succeeded"))
            await wait_until(lambda: counts().get(("pods", "synced")) == 1)
            assert (count_lines("cannot watch pods"), count_lines("watching pods again")) == (1, 1)
            assert count_lines("cannot watch events about a Pod") == 0


# ---- calls to a server that cannot list the jobs


RULE = "{apiGroups: [kubeflow.org], resources: [pytorchjobs], verbs: [list, watch]}"
CALLS = {
    "list": lambda jobs: anext(jobs.list_jobs(wire.ListJobsRequest())),
    "watch": lambda jobs: anext(jobs.watch_jobs(wire.WatchJobsRequest())),
    "watch one": lambda jobs: anext(jobs.watch_jobs(wire.WatchJobsRequest(name=NAME))),
    "get": lambda jobs: jobs.get_job(wire.GetJobRequest(name=NAME)),
    "logs": lambda jobs: anext(jobs.read_logs(wire.ReadLogsRequest(name=NAME))),
    "cancel": lambda jobs: jobs.cancel_job(wire.CancelJobRequest(name=NAME)),
}


@contextlib.asynccontextmanager
async def starting(server, folder):
    """Run a connector that may not be ready."""
    async with (
        opened(options(server, folder)) as cluster,
        serving(folder, cluster, watch_status=cluster.watch_status, namespaces=("*",)) as here,
    ):
        yield here


@pytest.fixture
def short_waits(monkeypatch):
    """Shorten the waits for the first list, which never succeeds here."""
    monkeypatch.setattr(job_service, "_READY_SECONDS", 0.1)
    monkeypatch.setattr(connector_service, "_CREATE_SECONDS", 1.0)


async def test_unknown_job_is_reported_with_the_kind_that_cannot_be_listed(server, tmp_path, short_waits):
    server.groups["trainer.kubeflow.org"] = {"trainjobs": "v1alpha1"}
    server.forbidden |= {"list trainjobs", "list events"}
    async with starting(server, tmp_path) as here:
        await wait_until(here.cache.ready.is_set)
        with pytest.raises(JobNotFound, match=r"resources: \[trainjobs\], verbs: \[list, watch\]") as failed:
            await here.parts.jobs.get_job(wire.GetJobRequest(name=NAME))
    assert "events" not in str(failed.value)


async def test_calls_fail_with_the_missing_rule_while_jobs_cannot_be_listed(server, tmp_path, short_waits):
    server.apply(JOBS, job())
    server.forbidden |= {"list pytorchjobs", "list trainjobs"}
    async with starting(server, tmp_path) as here:
        await wait_until(lambda: RULE in here.cache.describe_incompleteness())
        for name, call in CALLS.items():
            with pytest.raises(ClusterUnavailable) as failed:
                await call(here.parts.jobs)
            assert RULE in str(failed.value), name
        code, details = await code_of(here.create())
    assert (code, RULE in details) == (grpc.StatusCode.UNAVAILABLE, True)


async def test_first_list_is_awaited(server, tmp_path):
    server.apply(JOBS, job())
    async with starting(server, tmp_path) as here:
        (part,) = [part async for part in here.parts.jobs.list_jobs(wire.ListJobsRequest())]
        assert [each.name for each in part.jobs] == [NAME]
        assert here.cache.describe_incompleteness() == ""


async def test_records_are_kept_while_a_list_is_incomplete(server, tmp_path):
    for number in range(4):
        server.apply(JOBS, job(f"f{number}-n0-0-0123456789ab"))
    async with followed(server, tmp_path, page=2) as heard:
        before = heard.names()
        server.faults += [Fault(path="pytorchjobs"), Fault(path="pytorchjobs", times=2, code=503)]
        server.do(lambda objects: objects.compact())
        server.cut()
        await wait_until(lambda: all(fault.times == 0 for fault in server.faults))
        assert heard.names() == before
        await wait_until(lambda: heard.replaced.count("Job") == 2)
        assert heard.names() == before
