"""Requests to a cluster and the results of API errors for the caller."""

import asyncio
import contextlib
from dataclasses import replace
from types import MappingProxyType

import pytest
from kube_server import Fault
from kube_world import IDENTITY, JOBS, NAME, PODS, WORKFLOWS, event, job, opened, options, pod, workflow
from serving import wait_until

from backend_plugin.core.dialects.trainjob.resource import RUNTIME
from backend_plugin.core.errors import RequestRejected
from backend_plugin.shell.cluster import AlreadyExists, ClusterUnavailable, Misconfigured, ObjectName

TEMPLATES = ("", "podtemplates")
JOB = ObjectName(namespace="ns", name=NAME)


def list_names(server):
    return [key[3] for key in server.objects.now]


async def test_job_is_created_exactly_as_its_manifest(server, cluster):
    made = await cluster.create(MappingProxyType(job()))
    assert made["metadata"]["uid"].startswith("uid-")
    assert server.bodies == [job()]
    assert server.requests == ["POST /apis/kubeflow.org/v1/namespaces/ns/pytorchjobs"]


@pytest.mark.parametrize(
    "fault", [{"code": 429, "headers": {"Retry-After": "60"}}, {"reset": "before"}, {"hang": 30}], ids=str
)
async def test_persistent_error_is_raised_after_the_timeout(server, tmp_path, fault):
    server.faults.append(Fault("POST", times=1_000, **fault))
    async with opened(options(server, tmp_path, request_timeout=0.6)) as cluster:
        with pytest.raises(ClusterUnavailable):
            await cluster.create(job())
    assert list_names(server) == []


@pytest.mark.parametrize("fault", [{"reset": "after"}, {"truncate": True}], ids=["reset", "truncated"])
async def test_job_created_despite_a_lost_response_is_found(server, cluster, fault):
    server.faults.append(Fault("POST", **fault))
    with pytest.raises(AlreadyExists):
        await cluster.create(job())
    assert (await cluster.get(JOB))["metadata"]["name"] == NAME
    assert list_names(server) == [NAME]


@pytest.mark.parametrize("name", [f"{NAME}/status", f"{NAME}?x", f"{NAME}#x", f"{NAME}\n", ".", ""])
async def test_invalid_name_addresses_no_object(server, cluster, name):
    server.apply(JOBS, job())
    for no_job in (ObjectName(namespace="ns", name=name), ObjectName(namespace=name, name=NAME)):
        assert await cluster.get(no_job) is None
        assert await cluster.list_pods(no_job) == ()
        await cluster.patch(no_job, {"spec": {}})
        await cluster.delete(no_job)
    assert await cluster.list_pod_templates(["ns"], name) == []
    with pytest.raises(RequestRejected, match="not a name of a namespace"):
        await cluster.create({**job(), "metadata": {"name": NAME, "namespace": f"ns/{name}"}})
    assert server.requests == []


ANOTHER = ObjectName(namespace="ns", name=NAME, uid="another")
PATCH = {"metadata": {"labels": {"a": "b"}}}


async def test_patch_is_merged_only_into_the_job_with_the_uid(server, cluster):
    uid = server.apply(JOBS, job())["metadata"]["uid"]
    for name in (ANOTHER, ObjectName(namespace="ns", name="other")):
        await cluster.patch(name, PATCH)
    assert "a" not in server.get_object(JOBS, NAME)["metadata"]["labels"]
    await cluster.patch(ObjectName(namespace="ns", name=NAME, uid=uid), PATCH)
    assert server.get_object(JOBS, NAME)["metadata"]["labels"] == {IDENTITY: "x", "a": "b"}


async def test_patch_raises_rejection_and_missing_permission(server, tmp_path):
    status = {"kind": "Status", "message": "spec: Invalid value", "reason": "Invalid", "code": 422}
    server.faults.append(Fault("PATCH", code=422, status=status))
    async with opened(options(server, tmp_path, namespaces=("ns",))) as cluster:
        with pytest.raises(RequestRejected, match="Invalid value"):
            await cluster.patch(JOB, {"spec": {}})
        server.forbidden.add("patch pytorchjobs")
        with pytest.raises(ClusterUnavailable, match=r"a Role in namespace ns: .*verbs: .patch."):
            await cluster.patch(JOB, {"spec": {}})


async def test_delete_removes_only_the_job_with_the_uid(server, cluster):
    uid = server.apply(JOBS, job())["metadata"]["uid"]
    await cluster.delete(ANOTHER)
    assert list_names(server) == [NAME]
    for _ in range(2):  # A missing job is accepted.
        await cluster.delete(ObjectName(namespace="ns", name=NAME, uid=uid))
    assert list_names(server) == []
    how = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    assert server.bodies[1] == {**how, "preconditions": {"uid": uid}}


async def test_stopped_pod_has_a_deadline_until_it_is_deleted(server, cluster):
    uid = server.apply(PODS, pod())["metadata"]["uid"]
    name = ObjectName(namespace="ns", name=f"{NAME}-master-0", uid=uid)
    await cluster.stop_pod(replace(name, uid="another"))
    assert "activeDeadlineSeconds" not in server.get_object(PODS, name.name)["spec"]
    await cluster.stop_pod(name)
    assert server.get_object(PODS, name.name)["spec"]["activeDeadlineSeconds"] == 1
    for _ in range(2):  # A missing pod is accepted.
        await cluster.delete_pod(name)
        assert list_names(server) == []
    await cluster.stop_pod(name)
    server.forbidden.add("patch pods")
    with pytest.raises(Misconfigured, match=r"verbs: .patch."):
        await cluster.stop_pod(name)


async def test_pod_templates_are_found_in_each_namespace(server, cluster):
    server.apply(TEMPLATES, {"metadata": {"name": "gpu", "namespace": "platform"}, "template": {}})
    found = await cluster.list_pod_templates(["ns", "platform"], "gpu")
    assert [each["metadata"]["namespace"] for each in found] == ["platform"]
    server.forbidden.add("get podtemplates")
    with pytest.raises(ClusterUnavailable, match=r"resources: .podtemplates., verbs: .get."):
        await cluster.list_pod_templates(["ns", "platform"], "gpu")


async def test_closed_cluster_sends_no_request(server, tmp_path):
    async with opened(options(server, tmp_path, request_timeout=0.3)) as cluster:
        await cluster.close()
        with pytest.raises(ClusterUnavailable):
            await cluster.get(JOB)


@contextlib.asynccontextmanager
async def under_way(many, is_sent):
    """Start requests that hang, and yield them when the maximum number is being sent."""
    tasks = [asyncio.ensure_future(each) for each in many]
    try:
        await wait_until(is_sent)
        yield tasks
        assert not any(each.done() for each in tasks)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def asked_for(server, method):
    return sum(each.startswith(method) for each in server.requests)


def build_names(number):
    return [ObjectName(namespace="ns", name=f"j{index}") for index in range(number)]


@pytest.mark.parametrize(
    ("method", "most", "request_change"),
    [
        (
            "POST /apis/kubeflow.org/v1/namespaces/slow/",
            48,
            lambda cluster, name: cluster.create(job(metadata={"name": name.name, "namespace": "slow"})),
        ),
        ("PATCH /", 12, lambda cluster, name: cluster.patch(name, {"spec": {}})),
        ("DELETE /", 48, lambda cluster, name: cluster.delete(name, awaited=True)),
        ("POST /api/", 24, lambda cluster, name: cluster.record_event(event(name.name))),
    ],
    ids=["creations in another namespace", "patches", "deletions", "events"],
)
async def test_many_requests_do_not_delay_a_job_creation(server, tmp_path, method, most, request_change):
    server.faults.append(Fault(*method.split(), hang=100, times=1_000))
    async with opened(options(server, tmp_path, request_timeout=90.0)) as cluster:
        many = [request_change(cluster, name) for name in build_names(200)]
        async with under_way(many, lambda: asked_for(server, method) >= most):
            made = await asyncio.wait_for(cluster.create(job()), 60)
            assert asked_for(server, method) == most
    assert made["metadata"]["name"] == NAME


async def test_background_requests_do_not_delay_abort_and_cancellation(server, tmp_path):
    server.apply(JOBS, job())
    server.faults += [Fault(each, path="/j", hang=100, times=1_000) for each in ("PATCH", "DELETE")]
    async with opened(options(server, tmp_path, request_timeout=90.0)) as cluster:
        edits = [cluster.patch(each, {"spec": {}}) for each in build_names(100)]
        leftovers = [cluster.delete(each) for each in build_names(100)]
        pods = [cluster.delete_pod(each) for each in build_names(100)]
        is_sent = lambda: asked_for(server, "PATCH") + asked_for(server, "DELETE") >= 12  # noqa: E731
        async with under_way([*edits, *leftovers, *pods], is_sent):
            assert asked_for(server, "PATCH") + asked_for(server, "DELETE") == 12
            await asyncio.wait_for(cluster.patch(JOB, PATCH, awaited=True), 60)
            await asyncio.wait_for(cluster.delete(JOB, awaited=True), 60)
    assert list_names(server) == []


async def test_queued_request_does_not_time_out_behind_others(server, tmp_path):
    """Twelve concurrent requests of 0.5 s each: the API server is slow but always responds."""
    server.apply(JOBS, job())
    server.faults.append(Fault("PATCH", hang=0.5, times=1_000))
    async with opened(options(server, tmp_path, request_timeout=3.0)) as cluster:
        await asyncio.gather(*(cluster.patch(JOB, PATCH) for _ in range(96)))
    assert asked_for(server, "PATCH") == 96


async def test_request_in_backoff_does_not_block_others(server, tmp_path):
    server.apply(JOBS, job())
    server.faults.append(Fault("PATCH", path="/j", code=503, times=10_000))
    async with opened(options(server, tmp_path, request_timeout=90.0)) as cluster:
        edits = [cluster.patch(each, {"spec": {}}) for each in build_names(100)]
        async with under_way(edits, lambda: asked_for(server, "PATCH") >= 100):
            await asyncio.wait_for(cluster.patch(JOB, PATCH), 60)


async def test_only_runtimes_without_an_owner_are_listed(server, cluster):
    server.groups[RUNTIME.group] = {RUNTIME.plural: RUNTIME.version}
    kind = {"apiVersion": RUNTIME.api_version, "kind": RUNTIME.kind}
    owner = {"apiVersion": "v1", "kind": "TrainJob", "name": "j", "uid": "u"}
    for name, owners in (("left", {}), ("owned", {"ownerReferences": [owner]})):
        about = {"name": name, "namespace": "ns", "labels": {IDENTITY: "a"}, **owners}
        await cluster.create({**kind, "metadata": about, "spec": {}})
    (found,) = await cluster.list_prerequisites()
    assert (found["apiVersion"], found["kind"], found["metadata"]["name"]) == (*kind.values(), "left")


async def test_jobs_of_all_served_kinds_are_listed(server, cluster):
    del server.groups["kubeflow.org"]
    with pytest.raises(ClusterUnavailable):
        await cluster.list_jobs()
    server.groups["trainer.kubeflow.org"] = {"trainjobs": "v1alpha1"}
    there = {**job(), "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    server.apply(("trainer.kubeflow.org", "trainjobs"), there)
    assert [each.name for each in await cluster.list_jobs()] == [NAME]


RULE = "{apiGroups: [flyte.lyft.com], resources: [flyteworkflows], verbs: [get]}"


def owners(server, tmp_path, *executions, **settings):
    async def all_of_it():
        async with opened(options(server, tmp_path, **settings)) as cluster:
            return [await cluster.find_owner("ns", each) for each in executions]

    return asyncio.run(all_of_it())


def exists(server, name, namespace="ns"):
    server.groups["flyte.lyft.com"] = {"flyteworkflows": "v1alpha1"}
    server.apply(WORKFLOWS, workflow(name, namespace))


def test_missing_workflow_or_empty_name_does_not_prevent_the_next_lookup(server, tmp_path):
    exists(server, "f2")
    unnamed, first, second = owners(server, tmp_path, "", "f1", "f2")
    assert (unnamed, first, second and second.name) == (None, None, "f2")
    assert len(server.requests) == 2  # The empty name causes no request.


@pytest.mark.parametrize("permitted", [True, False], ids=["there is no such kind", "not permitted"])
def test_missing_workflow_api_or_permission_pauses_the_lookups(server, tmp_path, caplog, permitted):
    if not permitted:
        exists(server, "f1")
        server.forbidden.add("get flyteworkflows")
    assert owners(server, tmp_path, "f1", "f1", "f1") == [None] * 3
    assert len(server.requests) == 1
    assert (RULE in caplog.text) is not permitted
    assert owners(server, tmp_path, "f1", "f1", refused_pause=0.0) == [None] * 2
    assert len(server.requests) == 3


def test_slow_lookup_leaves_the_job_without_an_owner(server, tmp_path):
    exists(server, "f1")
    server.faults.append(Fault(path="flyteworkflows", hang=5.0))
    first, second = owners(server, tmp_path, "f1", "f1")
    assert (first, second and second.name) == (None, "f1")


@pytest.mark.parametrize("fault", [{"code": 500}, {"truncate": True}])
def test_transient_error_is_retried_within_the_timeout(server, tmp_path, fault):
    exists(server, "f1")
    server.faults.append(Fault(path="flyteworkflows", **fault))
    (owner,) = owners(server, tmp_path, "f1")
    assert owner is not None


async def test_forbidden_namespace_is_queried_until_it_is_permitted_and_logged_once(server, tmp_path, caplog):
    caplog.set_level("INFO")
    exists(server, "f1")
    refused = {"kind": "Status", "message": 'User "us" cannot get resource "flyteworkflows"'}
    server.faults.append(Fault(path="/other/flyteworkflows", times=100, code=403, status=refused))
    async with opened(options(server, tmp_path, refused_pause=0.0)) as cluster:
        for _ in range(3):
            assert await cluster.find_owner("other", "f1") is None
            assert await cluster.find_owner("ns", "f1") is not None
        assert caplog.text.count(RULE) == 1
        assert "was granted" not in caplog.text
        server.faults.clear()
        exists(server, "f1", "other")
        assert await cluster.find_owner("other", "f1") is not None
        assert "was granted" in caplog.text
