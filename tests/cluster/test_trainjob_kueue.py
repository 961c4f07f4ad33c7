"""TrainJobs in a queue of the real Kueue, with the real Trainer; only the pods are simulated."""

import time
from collections.abc import Iterator

import pytest
from rig import fake_nodes, kueue, scheduling, trainer
from rig.api import pods
from rig.backend import Backend
from rig.caller import Caller, CallerAttempt, Shape
from rig.control_plane import ControlPlane
from rig.fake_nodes import RUN
from rig.process import wait_until

from backend_plugin import client

NAMESPACE = "queued"
SETTINGS = {"kfpytorch": {"gang": {"scheduler": "kueue", "queue": "team"}}}


@pytest.fixture(scope="module")
def plane(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with Trainer and with Kueue, whose queue has the CPUs of one job."""
    with ControlPlane(tmp_path_factory.mktemp("kueue")) as plane:
        scheduling.start(plane)
        fake_nodes.start(plane, 2)
        trainer.start(plane)
        kueue.start(plane, kueue.TRAINJOBS)
        plane.namespace(NAMESPACE)
        for manifest in (
            *kueue.quota("all", {"cpu": "2", "memory": "10Gi"}),
            kueue.local_queue(NAMESPACE, "team", "all"),
        ):
            plane.admin.apply(manifest)
        yield plane


def wait_for_phase(caller: Caller, attempt: CallerAttempt, phase: str) -> None:
    wait_until(lambda: caller.get(attempt).phase == phase, 40, lambda: str(caller.get(attempt)))


def count_pods(plane: ControlPlane, attempt: CallerAttempt) -> int:
    return len(
        plane.admin.items(pods(NAMESPACE), labelSelector=f"jobset.sigs.k8s.io/jobset-name={attempt.job}")
    )


def test_a_cancelled_job_stays_ended_and_frees_its_quota(
    plane: ControlPlane, caller: Caller, served: Backend
) -> None:
    # The end of its pods would restart this job, so it is ended by a suspension.
    first = caller.create(shape=Shape(workers=1, run_policy={"backoffLimit": 1}))
    wait_for_phase(caller, first, "RUNNING")
    second = caller.create(shape=Shape(workers=1, annotations={RUN: "5s"}))
    wait_for_phase(caller, second, "WAITING_FOR_RESOURCES")
    wait_until(lambda: "team" in caller.get(second).message, 20, lambda: str(caller.get(second)))
    client.cancel_job(first.job, namespace=NAMESPACE, server=str(served.state))
    wait_for_phase(caller, first, "FAILED")
    wait_for_phase(caller, second, "RUNNING")
    caller.succeeded(second)
    wait_for_phase(caller, second, "SUCCEEDED")
    # Kueue resumes any admitted job, and the quota is free again.
    time.sleep(5)
    assert count_pods(plane, first) == 0
    assert caller.get(first).phase == "FAILED"
