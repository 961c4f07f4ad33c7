"""Restarts of the API server and etcd, and clock skew: no task is affected."""

from datetime import timedelta

import pytest
from rig import kubelet
from rig.api import finish_job, jobs
from rig.backend import Backend
from rig.caller import Caller
from rig.process import wait_until
from rig.proxy import Proxy

PLANE = "bare"
NAMESPACE = "faults-restart"


@pytest.mark.parametrize("component", ["api_server", "etcd"])
def test_control_plane_restart_costs_no_attempt(bare, caller, component):
    lives, ends, goes = caller.create(), caller.create(), caller.create()
    caller.succeeded(ends)
    process = getattr(bare, component)
    process.kill()
    phases = {caller.get(each).phase for each in (lives, ends, goes)}
    caller.delete(goes)  # The deletion is accepted now and performed when the cluster is back.
    late = caller.attempt()
    assert not caller.try_to_create(late)
    assert phases == {"QUEUED"}
    process.start()
    bare.wait()
    wait_until(lambda: caller.try_to_create(late))
    finish_job(bare.admin, jobs(NAMESPACE, ends.job), "Succeeded")
    caller.wait_for(ends, "SUCCEEDED")
    bare.admin.wait_until_gone(jobs(NAMESPACE, goes.job))
    uids = {each["metadata"]["uid"] for each in bare.admin.items(jobs(NAMESPACE))}
    assert {each.uid for each in (lives, ends, late)} <= uids
    assert caller.get(lives).phase == "QUEUED"


@pytest.mark.parametrize("minutes", [-10, 10])
def test_clock_skew_does_not_change_phases(bare, tmp_path, minutes):
    """Clock skew causes no early timeout and no delay of terminal phases, and outputs count."""
    bare.namespace(NAMESPACE)
    with (
        Proxy(bare) as proxy,
        Backend(bare, tmp_path, server=proxy.url) as served,
        Caller(served.endpoint, tmp_path, NAMESPACE) as caller,
    ):
        proxy.skew = timedelta(minutes=minutes)
        lives, well, badly = caller.create(), caller.create(), caller.create()
        assert caller.get(lives).phase == "QUEUED"
        now = kubelet.format_now()
        caller.succeeded(well)
        finish_job(bare.admin, jobs(NAMESPACE, well.job), "Succeeded", now)
        finish_job(bare.admin, jobs(NAMESPACE, badly.job), "Failed", now)
        caller.wait_for(well, "SUCCEEDED")
        failed = caller.wait_for(badly, "RETRYABLE_FAILED")
        assert "the pods that could show the reason no longer exist" in failed.message
        assert caller.get(lives).phase == "QUEUED"
