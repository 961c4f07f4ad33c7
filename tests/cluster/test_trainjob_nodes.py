"""The tasks of `test_backend_trains` as TrainJobs, with Trainer and JobSet, on two real nodes."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import training_tasks
from rig import backend, environments, images, initializers, trainer
from rig.api import build_manifest, pods
from rig.backend import Backend
from rig.namespaces import GATEWAY
from rig.process import wait_for, wait_until
from rig.propeller import IMAGE, NAMESPACE, PropellerOptions, RealExecution, RealPropeller, list_owned
from rig.real_cluster import RealCluster
from rig.stores import S3, add_volume
from wheels import build_wheel, create_environment

from backend_plugin import client
from flytekitplugins.kfpytorch import PyTorch, TrainJob, Worker

pytestmark = pytest.mark.timeout(1200)
TRAINJOBS = trainer.TRAINJOBS.format(NAMESPACE)


ROUNDS = 8
"""The drains of one job in the soak tier."""


@pytest.fixture(scope="module")
def shared(cluster: RealCluster) -> Path:
    """The folder of the server and the propeller, which containers see at the same path."""
    shared = cluster.shared / "trainjobs"
    shared.mkdir()
    return shared


@pytest.fixture(scope="module")
def served(cluster: RealCluster, shared: Path) -> Iterator[Backend]:
    """A server that creates TrainJobs, on a cluster that also has the training-operator."""
    trainer.start(cluster.plane)
    backend.permit(cluster.plane)
    settings = {"kfpytorch": {"dialect": "trainjob", "max-disruptions": 2 * ROUNDS}}
    with Backend(cluster.plane, shared, settings=settings) as served:
        yield served


@pytest.fixture(scope="module")
def propeller(cluster: RealCluster, served: Backend, shared: Path) -> Iterator[RealPropeller]:
    with RealPropeller(cluster.plane, shared, PropellerOptions(connector=served.endpoint)) as propeller:
        yield propeller


def test_torch_nodes_have_the_ranks_of_master_and_worker(
    cluster: RealCluster, propeller: RealPropeller
) -> None:
    execution = propeller.start(training_tasks.succeeds, value=3)
    assert propeller.wait_for_outputs(execution) == {"o0": "rank 0 of 2: 3"}
    (job,) = list_owned(cluster.admin, TRAINJOBS, execution)
    assert job["spec"]["trainer"]["numNodes"] == 2


@pytest.fixture(scope="module")
def image(cluster: RealCluster) -> str:
    """The name of an image with pip."""
    python, programs = images.python(), create_environment(cluster.shared / "environment") / "bin"
    environment = {**python.environment, "PATH": f"{programs}:{python.environment['PATH']}"}
    image = replace(python, names=["pip:1"], environment=environment)
    cluster.load_image(image)
    return "pip:1"


def test_each_node_installs_the_packages_of_the_task(
    propeller: RealPropeller, image: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = build_wheel(shared, "tiny_one", "1.2")
    packages = TrainJob(packages=[f"tiny_one @ file://{wheel}"])
    config = PyTorch(worker=Worker(replicas=1), train_job=packages)
    monkeypatch.setattr(training_tasks.installs, "_task_config", config)
    execution = propeller.start(training_tasks.installs, image)
    assert propeller.wait_for_outputs(execution) == {"o0": "1.2"}


def test_packages_of_a_runtime_are_those_of_its_image(cluster: RealCluster, propeller: RealPropeller) -> None:
    cluster.admin.apply(trainer.build_runtime("tests", IMAGE))
    state = str(cluster.shared / "trainjobs/state")
    found = client.get_runtime_packages("tests", namespace=NAMESPACE, server=state)
    assert found.python.startswith("3.")
    assert "torch" in {each.name for each in found.packages}
    left = [each["metadata"]["name"] for each in cluster.admin.items(TRAINJOBS)]
    assert [each for each in left if each.startswith("packages-")] == []


def test_logs_of_three_nodes_show_six_ranks(
    cluster: RealCluster, propeller: RealPropeller, served: Backend
) -> None:
    execution = propeller.start(training_tasks.shows_the_ranks)
    assert propeller.wait_for_outputs(execution) == {"o0": 6}
    (job,) = list_owned(cluster.admin, TRAINJOBS, execution)
    connection = {"namespace": NAMESPACE, "server": str(served.state)}
    ranks = list[int]()
    for node in range(3):
        options = client.LogOptions(node=node)
        text = "\n".join(
            line.text for line in client.get_job_logs(job["metadata"]["name"], options, **connection)
        )
        assert re.findall(r"\bWORLD_SIZE: (\d+)", text) == ["6", "6"], text
        assert sorted(re.findall(r"\bLOCAL_RANK: (\d+)", text)) == ["0", "1"], text
        own = sorted(map(int, re.findall(r"\bRANK: (\d+)", text)))
        assert own == [own[0], own[0] + 1], text
        ranks += own
    assert sorted(ranks) == [*range(6)]


def test_elastic_job_grows_and_survives_a_lost_node(
    cluster: RealCluster, propeller: RealPropeller, shared: Path
) -> None:
    stop_file = shared / "grown"
    size = WorldSize(cluster, Path(f"{stop_file}.size"))
    set_unschedulable(cluster, "node-2", unschedulable=True)
    try:
        execution = propeller.start(training_tasks.grows_and_shrinks, stop_file=str(stop_file))
        size.wait_for(1)
        set_unschedulable(cluster, "node-2", unschedulable=False)
        size.wait_for(2)
        nodes = {
            each["spec"].get("nodeName"): each
            for each in list_owned(cluster.admin, pods(NAMESPACE), execution)
        }
        set_unschedulable(cluster, "node-2", unschedulable=True)
        evict(cluster, nodes["node-2"])
        size.wait_for(1)
        stop_file.touch()
        assert propeller.wait_for_outputs(execution) == {"o0": 1}
    finally:
        set_unschedulable(cluster, "node-2", unschedulable=False)
    assert propeller.attempts(execution) == 1


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_repeated_drains_cost_no_attempt(
    cluster: RealCluster, propeller: RealPropeller, shared: Path
) -> None:
    stop_file = shared / "drained"
    size = WorldSize(cluster, Path(f"{stop_file}.size"))
    execution = propeller.start(training_tasks.reduces_until, stop_file=str(stop_file))
    size.wait_for(2)
    for number in range(ROUNDS):
        node = f"node-{number % 2 + 1}"
        with drained(cluster, node, execution) as evicted:
            wait_for_replacements(cluster, execution, evicted)
            size.file.unlink()
            size.wait_for(2)
            now = list_owned(cluster.admin, pods(NAMESPACE), execution)
            assert {each["spec"]["nodeName"] for each in now} == {f"node-{2 - number % 2}"}
    stop_file.touch()
    propeller.wait_for_success(execution)
    assert propeller.attempts(execution) == 1
    assert count_restarts(cluster, execution) >= ROUNDS


def count_restarts(cluster: RealCluster, execution: RealExecution) -> int:
    """Return the number of restarts of the JobSet of an execution."""
    (job,) = list_owned(cluster.admin, TRAINJOBS, execution)
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets/{job['metadata']['name']}"
    found = cluster.admin.get(path)
    assert found is not None
    return int(found["status"].get("restarts", 0))


@pytest.fixture(scope="module")
def jax(cluster: RealCluster) -> str:
    """The folder of the packages of jax, which the containers can read."""
    folder = cluster.shared / "jax"
    shutil.copytree(environments.find_packages("jax"), folder, copy_function=os.link)
    return str(folder)


def test_jax_processes_on_two_nodes_reduce(cluster: RealCluster, propeller: RealPropeller, jax: str) -> None:
    execution = propeller.start(training_tasks.reduces_with_jax_by_node, value=3, packages=jax)
    assert propeller.wait_for_outputs(execution) == {"o0": 18}
    ended = list_owned(cluster.admin, pods(NAMESPACE), execution)
    assert {each["spec"]["nodeName"] for each in ended} == {"node-1", "node-2"}


def test_failed_jax_process_does_not_wait_for_the_others(propeller: RealPropeller, jax: str) -> None:
    execution = propeller.start(training_tasks.reduces_with_jax, value=-1, packages=jax)
    error = propeller.wait_for_failure(execution)
    assert "node-1 failed: ValueError: the learning rate is negative" in error


def test_mpi_ranks_on_two_nodes_reduce(cluster: RealCluster, propeller: RealPropeller) -> None:
    execution = propeller.start(training_tasks.reduces_with_mpi, images.MPI, value=3)
    assert propeller.wait_for_outputs(execution) == {"o0": 18}
    ended = list_owned(cluster.admin, pods(NAMESPACE), execution)
    assert {each["spec"]["nodeName"] for each in ended} == {"node-1", "node-2"}
    assert {each["status"]["phase"] for each in ended} == {"Succeeded"}
    (job,) = {each["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] for each in ended}
    names = {each["metadata"]["name"].rpartition("-")[0] for each in ended}
    assert names == {f"{job}-launcher-0-0", f"{job}-node-0-0"}


@pytest.mark.soak
def test_failed_mpi_rank_ends_the_job_with_its_cause(propeller: RealPropeller) -> None:
    execution = propeller.start(training_tasks.reduces_with_mpi, images.MPI, value=-1)
    assert "ValueError: the learning rate is negative" in propeller.wait_for_failure(execution)


@pytest.fixture(scope="module")
def data(
    cluster: RealCluster, propeller: RealPropeller, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Nodes with the images of Trainer's initializers, and a data set and a model in an S3 store."""
    initializers.load_images(cluster)
    with S3(tmp_path_factory.mktemp("data"), cluster.plane.place) as store:
        store.write("numbers/numbers.txt", b"1 2 3 4 5 6 7")
        store.write("factor/factor.txt", b"3")
        known = dict(store.for_initializers(GATEWAY))
        cluster.admin.create(build_manifest("v1", "Secret", "store", NAMESPACE, stringData=known))
        yield


def test_nodes_train_with_the_data_that_initializers_have_loaded(
    cluster: RealCluster, propeller: RealPropeller, shared: Path, data: None
) -> None:
    add_volume(cluster.admin, "data", shared / "data")
    execution = propeller.start(training_tasks.reads_loaded_data)
    assert propeller.wait_for_outputs(execution) == {"o0": 84}
    ended = list_owned(cluster.admin, pods(NAMESPACE), execution)
    nodes = {
        each["spec"]["nodeName"]
        for each in ended
        if each["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] == "node"
    }
    assert nodes == {"node-1", "node-2"}


def test_data_that_cannot_be_loaded_fails_the_task_without_a_retry(
    cluster: RealCluster, propeller: RealPropeller, shared: Path, data: None
) -> None:
    add_volume(cluster.admin, "absent-data", shared / "absent-data")
    execution = propeller.start(training_tasks.loads_absent_data)
    error = propeller.wait_for_failure(execution)
    assert "dataset-initializer-0 failed: exit code 1 (invalid-config)" in error
    assert "NoSuchBucket" in error
    assert propeller.attempts(execution) == 1
    assert count_restarts(cluster, execution) == 0


@dataclass(frozen=True)
class WorldSize:
    """The file to which a training writes its world size after each step."""

    cluster: RealCluster
    file: Path

    def wait_for(self, size: int) -> None:
        """Wait until the training has this world size. Its pods import torch, which takes long under load."""
        wait_until(lambda: self._read() == str(size), 400, lambda: self._describe(size))

    def _read(self) -> str:
        return self.file.read_text() if self.file.exists() else ""

    def _describe(self, size: int) -> str:
        api = self.cluster.admin
        lines = [f"the world size is {self._read() or 'unknown'}, not {size}"]
        for pod in api.items(pods(NAMESPACE)):
            name, status = pod["metadata"]["name"], pod["status"]
            log = api.request("GET", f"{pods(NAMESPACE, name)}/log", params={"tailLines": "20"})
            conditions = [each for each in status.get("conditions", ()) if each["status"] != "True"]
            lines.append(
                f"{name} on {pod['spec'].get('nodeName')}: {status['phase']} {conditions}\n{log.text}"
            )
        return "\n".join(lines)


def wait_for_replacements(cluster: RealCluster, execution: RealExecution, old: set[str]) -> None:
    """Wait until the execution has two pods, and none of those with these uids."""
    wait_for(
        lambda: {each["metadata"]["uid"] for each in list_owned(cluster.admin, pods(NAMESPACE), execution)},
        lambda uids: len(uids) == 2 and not old & uids,
        120,
    )


@contextlib.contextmanager
def drained(cluster: RealCluster, node: str, execution: RealExecution) -> Iterator[set[str]]:
    """Drain a node of the pods of an execution, and yield their uids; accept new pods again on exit."""
    set_unschedulable(cluster, node, unschedulable=True)
    try:
        left = [
            each
            for each in list_owned(cluster.admin, pods(NAMESPACE), execution)
            if each["spec"].get("nodeName") == node and each["status"]["phase"] == "Running"
        ]
        for pod in left:
            evict(cluster, pod)
        yield {each["metadata"]["uid"] for each in left}
    finally:
        set_unschedulable(cluster, node, unschedulable=False)


def evict(cluster: RealCluster, pod: dict[str, Any]) -> None:
    """Evict a pod, as a drain of its node does."""
    name = pod["metadata"]["name"]
    eviction = build_manifest("policy/v1", "Eviction", name, NAMESPACE)
    answer = cluster.admin.request("POST", f"{pods(NAMESPACE, name)}/eviction", eviction)
    assert answer.status_code == 201, answer.text


def set_unschedulable(cluster: RealCluster, node: str, *, unschedulable: bool) -> None:
    cluster.admin.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": unschedulable}})
