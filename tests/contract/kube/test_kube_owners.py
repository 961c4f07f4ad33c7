"""The owner of a job, for which the creation of the job does not wait."""

import asyncio

import pytest
from kube_server import Fault
from kube_world import WORKFLOWS, opened, options

RULE = "{apiGroups: [flyte.lyft.com], resources: [flyteworkflows], verbs: [get]}"


def owners(server, tmp_path, *executions, **settings):
    async def all_of_it():
        async with opened(options(server, tmp_path, **settings)) as cluster:
            return [await cluster.find_owner("ns", each) for each in executions]

    return asyncio.run(all_of_it())


def exists(server, name):
    server.groups["flyte.lyft.com"] = {"flyteworkflows": "v1alpha1"}
    return server.apply(WORKFLOWS, {"metadata": {"name": name, "namespace": "ns"}})


def test_missing_workflow_does_not_prevent_the_next_lookup(server, tmp_path):
    exists(server, "f2")
    first, second = owners(server, tmp_path, "f1", "f2")
    assert (first, second and second.name) == (None, "f2")


@pytest.mark.parametrize("permitted", [True, False], ids=["there is no such kind", "not permitted"])
def test_missing_workflow_api_or_permission_pauses_the_lookups(server, tmp_path, caplog, permitted):
    if not permitted:
        exists(server, "f1")
        server.forbidden.add("get flyteworkflows")
    assert owners(server, tmp_path, "f1", "f1", "f1") == [None] * 3
    assert len(server.asked) == 1
    assert (RULE in caplog.text) is not permitted
    assert owners(server, tmp_path, "f1", "f1", refused_pause=0.0) == [None] * 2
    assert len(server.asked) == 3


def test_slow_lookup_leaves_the_job_without_an_owner(server, tmp_path):
    exists(server, "f1")
    server.faults.append(Fault(path="flyteworkflows", hang=5.0))
    first, second = owners(server, tmp_path, "f1", "f1")
    assert (first, second and second.name) == (None, "f1")


@pytest.mark.parametrize("trouble", [{"code": 500}, {"truncate": True}])
def test_transient_error_is_retried_within_the_timeout(server, tmp_path, trouble):
    exists(server, "f1")
    server.faults.append(Fault(path="flyteworkflows", **trouble))
    (owner,) = owners(server, tmp_path, "f1")
    assert owner is not None


async def test_forbidden_namespace_is_logged_once_and_others_are_queried(server, tmp_path, caplog):
    exists(server, "f1")
    refused = {"kind": "Status", "message": 'User "us" cannot get resource "flyteworkflows"'}
    server.faults.append(Fault(path="/other/flyteworkflows", times=100, code=403, status=refused))
    async with opened(options(server, tmp_path, refused_pause=0.0)) as cluster:
        for _ in range(3):
            assert await cluster.find_owner("other", "f1") is None
            assert await cluster.find_owner("ns", "f1") is not None
    assert caplog.text.count(RULE) == 1
    assert "was granted" not in caplog.text


async def test_lookups_continue_after_the_permission_was_granted(server, tmp_path, caplog):
    caplog.set_level("INFO")
    exists(server, "f1")
    server.forbidden.add("get flyteworkflows")
    async with opened(options(server, tmp_path, refused_pause=0.05)) as cluster:
        assert await cluster.find_owner("ns", "f1") is None
        server.forbidden.clear()
        await asyncio.sleep(0.06)
        assert await cluster.find_owner("ns", "f1") is not None
    assert "was granted" in caplog.text


def test_empty_execution_name_causes_no_request(server, tmp_path):
    assert owners(server, tmp_path, "") == [None]
    assert server.asked == []
