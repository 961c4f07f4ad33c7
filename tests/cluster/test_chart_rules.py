"""The RBAC rules of the chart are exactly those that the server needs.

The audit log of the API server shows the requests of a server that performs all its functions under these
rules. All other tests of this tier use the same rules.
"""

import time
from dataclasses import dataclass
from datetime import datetime, timezone

import pytest
from rig import audit, backend, fake_nodes, kubelet
from rig.api import build_manifest, has_condition, jobs, pods
from rig.backend import RULES, Backend
from rig.caller import RESTARTING, Caller, Shape
from rig.control_plane import BACKEND, ControlPlane
from rig.fake_nodes import BY_HAND
from rig.process import wait_until

from backend_plugin import client

NAMESPACE = "chart-rules"
TEMPLATE = "base"
# Only the detection of the gang scheduler creates pods, as a dry run. The platform auto-yunikorn of
# `test_gang_schedulers` requires it.
DRY_RUN = ("", "pods", "create")
# Schedulers and operators that do not run here. APIs that are not served are requested anyway, or found
# missing by discovery.
FOREIGN = {"scheduling.volcano.sh", "scheduling.run.ai", "kueue.x-k8s.io", "trainer.kubeflow.org"}

Use = tuple[str, str, str]  # An API group, a resource and a verb.


def permitted():
    return {
        (group, resource, verb)
        for rule in RULES
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@dataclass(frozen=True, kw_only=True)
class Life:
    """The requests of a server since a point in time."""

    plane: ControlPlane
    caller: Caller
    state: str
    since: str

    def used(self):
        return {
            (call.group, call.resource, call.verb)
            for call in audit.calls(self.plane)
            if call.user == BACKEND and call.at >= self.since and not call.resource.startswith("/")
        }

    def running(self, shape):
        attempt = self.caller.create(shape=shape)
        for replica in ("master-0", "worker-0"):
            pod = pods(NAMESPACE, f"{attempt.job}-{replica}")
            self.wait_until(lambda pod=pod: "nodeName" in (self.plane.admin.get(pod) or {}).get("spec", {}))
        return attempt

    def wait_until(self, happens):
        wait_until(happens, 60, lambda: f"used: {sorted(self.used())}")


@pytest.fixture
def life(plane, tmp_path):
    backend.permit(plane)
    plane.namespace(NAMESPACE)
    template = {"metadata": {}, "spec": {"containers": [{"name": "default", "image": "image:1"}]}}
    plane.admin.apply(build_manifest("v1", "PodTemplate", TEMPLATE, NAMESPACE, template=template))
    gang = {"scheduler": "coscheduling", "pod-groups-by": "backend"}
    settings = {
        "default-pod-template-name": TEMPLATE,
        "kfpytorch": {"gang": gang, "pod-template-namespace": NAMESPACE},
    }
    since = datetime.now(timezone.utc).isoformat()
    with (
        Backend(plane, tmp_path, settings=settings) as served,
        Caller(served.endpoint, tmp_path, NAMESPACE, again=False) as caller,
    ):
        yield Life(plane=plane, caller=caller, state=str(tmp_path / "state"), since=since)


def _wait_again(life):
    """Remove a worker of a running job while all nodes are unschedulable, and wait for the event."""
    job = jobs(NAMESPACE, life.running(RESTARTING).job)
    life.wait_until(lambda: has_condition(life.plane.admin.get(job), "Running"))
    # Timestamps have whole seconds: a pod lost in the first one of a job would look like one that never ran.
    time.sleep(2)
    with fake_nodes.cordoned(life.plane):
        life.plane.admin.delete(pods(NAMESPACE, f"{job.rpartition('/')[2]}-worker-0"))
        life.wait_until(lambda: ("", "events", "create") in life.used())


def test_server_uses_exactly_the_verbs_of_the_chart_rules(life):
    ended = life.running(Shape(workers=1))
    life.caller.create(ended)  # Creating the same task again reads the existing job.
    with pytest.raises(client.RequestFailed):  # Simulated nodes have no logs.
        list(client.get_job_logs(ended.job, namespace=NAMESPACE, server=life.state))
    life.caller.delete(ended)
    life.plane.admin.wait_until_gone(jobs(NAMESPACE, ended.job))

    failed = life.running(Shape(workers=1, annotations={BY_HAND: "true"}))
    paths = [pods(NAMESPACE, f"{failed.job}-{replica}") for replica in ("master-0", "worker-0")]
    master, worker = (life.plane.admin.get(path) for path in paths)
    for pod in (master, worker):
        kubelet.run(life.plane.admin, pod)
    kubelet.end(life.plane.admin, worker, 1)

    cancelled = life.running(Shape(workers=1))
    life.wait_until(lambda: life.caller.get(cancelled).phase == "RUNNING")
    client.cancel_job(cancelled.job, namespace=NAMESPACE, server=life.state)

    _wait_again(life)

    needed = {use for use in permitted() if use[0] not in FOREIGN} - {DRY_RUN}
    life.wait_until(lambda: needed <= life.used())
    assert life.used() <= permitted() - {DRY_RUN}
