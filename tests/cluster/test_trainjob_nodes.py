"""The tasks of `test_backend_trains` as TrainJobs, with Trainer and JobSet, on two real nodes."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import workflows
from rig import backend, environments, trainer
from rig.api import pods
from rig.backend import Backend
from rig.process import wait_until
from rig.propeller import NAMESPACE, PropellerOptions, RealPropeller, error_of, list_owned
from rig.real_cluster import RealCluster

pytestmark = pytest.mark.timeout(600)
TRAINJOBS = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs"


@pytest.fixture(scope="module")
def propeller(cluster: RealCluster) -> Iterator[RealPropeller]:
    """A propeller whose tasks run as TrainJobs, on a cluster that also has the training-operator."""
    trainer.start(cluster.plane)
    backend.permit(cluster.plane)
    folder = cluster.shared / "trainjobs"
    folder.mkdir()
    served = Backend(cluster.plane, folder, settings={"kfpytorch": {"dialect": "trainjob"}})
    with (
        served,
        RealPropeller(cluster.plane, folder, PropellerOptions(connector=served.endpoint)) as propeller,
    ):
        yield propeller


def test_the_nodes_have_the_ranks_of_a_master_and_a_worker(
    cluster: RealCluster, propeller: RealPropeller
) -> None:
    execution = propeller.start(workflows.succeeds, value=3)
    found = propeller.wait(execution, 240)
    assert found["status"]["phase"] == 3, error_of(found)
    assert propeller.outputs(execution) == {"o0": "rank 0 of 2: 3"}
    (job,) = list_owned(cluster.admin, TRAINJOBS, execution)
    assert job["spec"]["trainer"]["numNodes"] == 2


def test_elastic_agents_on_two_nodes_reduce(propeller: RealPropeller) -> None:
    execution = propeller.start(workflows.reduces, value=20)
    found = propeller.wait(execution, 240)
    assert found["status"]["phase"] == 3, error_of(found)
    assert propeller.outputs(execution) == {"o0": 41}
    phases = [each.phase for each in propeller.recorder.tasks(execution.name)]
    assert phases[-2:] == ["RUNNING", "SUCCEEDED"]


def test_a_failure_is_the_users_own_and_is_not_tried_again(propeller: RealPropeller) -> None:
    execution = propeller.start(workflows.fails, labels=31)
    found = propeller.wait(execution, 240)
    assert found["status"]["phase"] == 5
    assert "ValueError: batch 7 has 31 labels for 32 images" in str(error_of(found))
    assert propeller.attempts(execution) == 1


def test_an_evicted_node_costs_no_attempt(cluster: RealCluster, propeller: RealPropeller) -> None:
    told = cluster.shared / "trainjobs" / "evicted"
    execution = propeller.start(workflows.reduces_until, told=str(told))
    propeller.until_shown(execution, "RUNNING", 240)
    first = list_owned(cluster.admin, pods(NAMESPACE), execution)
    evict(cluster, first[-1])
    before = {each["metadata"]["uid"] for each in first}

    def are_replaced() -> bool:
        now = list_owned(cluster.admin, pods(NAMESPACE), execution)
        return len(now) == 2 and not before & {each["metadata"]["uid"] for each in now}

    wait_until(are_replaced, 120, lambda: str(list_owned(cluster.admin, pods(NAMESPACE), execution)))
    told.touch()
    found = propeller.wait(execution, 240)
    assert found["status"]["phase"] == 3, error_of(found)
    assert propeller.attempts(execution) == 1


def test_an_elastic_job_grows_and_survives_a_lost_node(
    cluster: RealCluster, propeller: RealPropeller
) -> None:
    told = cluster.shared / "trainjobs" / "grown"
    size = Path(f"{told}.size")
    set_unschedulable(cluster, "node-2", unschedulable=True)
    try:
        execution = propeller.start(workflows.grows_and_shrinks, told=str(told))
        wait_for_size(size, 1)
        set_unschedulable(cluster, "node-2", unschedulable=False)
        wait_for_size(size, 2)
        nodes = {
            each["spec"].get("nodeName"): each
            for each in list_owned(cluster.admin, pods(NAMESPACE), execution)
        }
        set_unschedulable(cluster, "node-2", unschedulable=True)
        evict(cluster, nodes["node-2"])
        wait_for_size(size, 1)
        told.touch()
        found = propeller.wait(execution, 240)
    finally:
        set_unschedulable(cluster, "node-2", unschedulable=False)
    assert found["status"]["phase"] == 3, error_of(found)
    assert propeller.outputs(execution) == {"o0": 1}
    assert propeller.attempts(execution) == 1


def test_an_abort_leaves_nothing(cluster: RealCluster, propeller: RealPropeller) -> None:
    execution = propeller.start(workflows.sleeps)
    propeller.until_shown(execution, "RUNNING", 240)
    propeller.abort(execution)
    for path in (TRAINJOBS, pods(NAMESPACE)):
        wait_until(
            lambda path=path: not list_owned(cluster.admin, path, execution),
            90,
            lambda path=path: f"{path} are left",
        )


@pytest.fixture(scope="module")
def jax(cluster: RealCluster) -> str:
    """The folder of the packages of jax, which the containers can read."""
    folder = cluster.shared / "jax"
    shutil.copytree(environments.find_packages("jax"), folder, copy_function=os.link)
    return str(folder)


def test_processes_of_jax_on_two_nodes_reduce(
    cluster: RealCluster, propeller: RealPropeller, jax: str
) -> None:
    execution = propeller.start(workflows.reduces_with_jax_by_node, value=3, packages=jax)
    found = propeller.wait(execution, 240)
    assert found["status"]["phase"] == 3, error_of(found)
    assert propeller.outputs(execution) == {"o0": 18}
    ended = list_owned(cluster.admin, pods(NAMESPACE), execution)
    assert {each["spec"]["nodeName"] for each in ended} == {"node-1", "node-2"}


def test_a_failed_process_of_jax_does_not_wait_for_the_others(propeller: RealPropeller, jax: str) -> None:
    execution = propeller.start(workflows.reduces_with_jax, value=-1, packages=jax)
    found = propeller.wait(execution, 240)
    assert found["status"]["phase"] == 5
    assert "node-1 failed: ValueError: the learning rate is negative" in str(error_of(found))


def wait_for_size(file: Path, size: int) -> None:
    """Wait until the training has this world size."""

    def read() -> str:
        return file.read_text() if file.exists() else ""

    wait_until(
        lambda: read() == str(size), 240, lambda: f"the world size is {read() or 'unknown'}, not {size}"
    )


def evict(cluster: RealCluster, pod: dict[str, Any]) -> None:
    """Evict a pod, as a drain of its node does."""
    name = pod["metadata"]["name"]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": NAMESPACE},
    }
    answer = cluster.admin.request("POST", f"{pods(NAMESPACE, name)}/eviction", eviction)
    assert answer.status_code == 201, answer.text


def set_unschedulable(cluster: RealCluster, node: str, *, unschedulable: bool) -> None:
    cluster.admin.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": unschedulable}})
