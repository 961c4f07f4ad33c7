"""The tasks of `test_backend_trains` as TrainJobs, with Trainer and JobSet, on two real nodes."""

import contextlib
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import training_tasks
from rig import images, trainer
from rig.api import build_manifest, pods
from rig.namespaces import GATEWAY
from rig.process import wait_for
from rig.propeller import IMAGE, NAMESPACE, list_owned
from rig.stores import S3, add_volume
from rig.tools import find_packages
from wheels import build_wheel, create_environment

from backend_plugin import client
from backend_plugin.core.settings.model import PluginSettings
from flytekitplugins.kfpytorch import PyTorch, TrainJob, Worker

pytestmark = pytest.mark.timeout(1200)
TRAINJOBS = trainer.TRAINJOBS.format(NAMESPACE)

ROUNDS = 8  # The drains of one job in the soak tier.
SETTINGS = {"kfpytorch": {"dialect": "trainjob", "max-disruptions": 2 * ROUNDS}}


@pytest.fixture(scope="module")
def plane(cluster):
    trainer.start(cluster.plane)
    return cluster.plane


@pytest.fixture(scope="module")
def image(cluster):
    python, programs = images.python(), create_environment(cluster.shared / "environment") / "bin"
    environment = {**python.environment, "PATH": f"{programs}:{python.environment['PATH']}"}
    cluster.load_image(replace(python, names=["pip:1"], environment=environment))
    return "pip:1"


def test_each_node_installs_the_packages_of_the_task(propeller, image, folder, monkeypatch):
    wheel = build_wheel(folder, "tiny_one", "1.2")
    packages = TrainJob(packages=[f"tiny_one @ file://{wheel}"])
    config = PyTorch(worker=Worker(replicas=1), train_job=packages)
    monkeypatch.setattr(training_tasks.installs, "_task_config", config)
    execution = propeller.start(training_tasks.installs, image)
    assert propeller.wait_for_outputs(execution) == {"o0": "1.2"}


def test_packages_of_a_runtime_are_those_of_its_image(cluster, served):
    cluster.admin.apply(trainer.build_runtime("tests", IMAGE))
    found = client.get_runtime_packages("tests", namespace=NAMESPACE, server=str(served.state))
    assert found.python.startswith("3.")
    assert "torch" in {each.name for each in found.packages}
    left = [each["metadata"]["name"] for each in cluster.admin.items(TRAINJOBS)]
    assert [each for each in left if each.startswith("packages-")] == []


def test_logs_of_three_nodes_show_six_ranks(cluster, propeller, served):
    execution = propeller.start(training_tasks.shows_the_ranks)
    assert propeller.wait_for_outputs(execution) == {"o0": 6}
    (job,) = list_owned(cluster.admin, TRAINJOBS, execution)
    known = {"namespace": NAMESPACE, "server": str(served.state)}
    ranks = list[int]()
    for node in range(3):
        options = client.LogOptions(node=node)
        text = "\n".join(line.text for line in client.get_job_logs(job["metadata"]["name"], options, **known))
        assert re.findall(r"\bWORLD_SIZE: (\d+)", text) == ["6", "6"], text
        assert sorted(re.findall(r"\bLOCAL_RANK: (\d+)", text)) == ["0", "1"], text
        own = sorted(map(int, re.findall(r"\bRANK: (\d+)", text)))
        assert own == [own[0], own[0] + 1], text
        ranks += own
    assert sorted(ranks) == [*range(6)]


def test_elastic_job_grows_and_survives_a_lost_node(cluster, propeller, folder):
    stop_file = folder / "grown"
    set_unschedulable(cluster, "node-2", unschedulable=True)
    try:
        execution = propeller.start(training_tasks.grows_and_shrinks, stop_file=str(stop_file))
        wait_for_size(stop_file, 1)
        set_unschedulable(cluster, "node-2", unschedulable=False)
        wait_for_size(stop_file, 2)
        nodes = {
            each["spec"].get("nodeName"): each
            for each in list_owned(cluster.admin, pods(NAMESPACE), execution)
        }
        set_unschedulable(cluster, "node-2", unschedulable=True)
        evict(cluster, nodes["node-2"])
        wait_for_size(stop_file, 1)
        stop_file.touch()
        assert propeller.wait_for_outputs(execution) == {"o0": 1}
    finally:
        set_unschedulable(cluster, "node-2", unschedulable=False)
    assert propeller.attempts(execution) == 1


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_repeated_drains_cost_no_attempt(cluster, propeller, folder):
    stop_file = folder / "drained"
    execution = propeller.start(training_tasks.reduces_until, stop_file=str(stop_file))
    wait_for_size(stop_file, 2)
    for number in range(ROUNDS):
        node = f"node-{number % 2 + 1}"
        with drained(cluster, node, execution) as evicted:
            wait_for_replacements(cluster, execution, evicted)
            Path(f"{stop_file}.size").unlink()
            wait_for_size(stop_file, 2)
            now = list_owned(cluster.admin, pods(NAMESPACE), execution)
            assert {each["spec"]["nodeName"] for each in now} == {f"node-{2 - number % 2}"}
    stop_file.touch()
    propeller.wait_for_success(execution)
    assert propeller.attempts(execution) == 1
    assert count_restarts(cluster, execution) >= ROUNDS


def count_restarts(cluster, execution):
    (job,) = list_owned(cluster.admin, TRAINJOBS, execution)
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets/{job['metadata']['name']}"
    return int(cluster.admin.get_existing(path)["status"].get("restarts", 0))


@pytest.fixture(scope="module")
def jax(cluster):
    """The folder of the packages of jax, which the containers can read."""
    packages = cluster.shared / "jax"
    shutil.copytree(find_packages("jax"), packages, copy_function=os.link)
    return str(packages)


def test_jax_processes_on_two_nodes_reduce(cluster, propeller, jax):
    execution = propeller.start(training_tasks.reduces_with_jax, value=3, packages=jax)
    assert propeller.wait_for_outputs(execution) == {"o0": 18}
    ended = list_owned(cluster.admin, pods(NAMESPACE), execution)
    assert {each["spec"]["nodeName"] for each in ended} == {"node-1", "node-2"}


def test_failed_jax_process_does_not_wait_for_the_others(propeller, jax):
    execution = propeller.start(training_tasks.reduces_with_jax, value=-1, packages=jax)
    error = propeller.wait_for_failure(execution)
    assert "rank 2 (node-1) failed: ValueError: the learning rate is negative" in error


def test_mpi_ranks_on_two_nodes_reduce(cluster, propeller):
    execution = propeller.start(training_tasks.reduces_with_mpi, images.MPI, value=3)
    assert propeller.wait_for_outputs(execution) == {"o0": 18}
    ended = list_owned(cluster.admin, pods(NAMESPACE), execution)
    assert {each["spec"]["nodeName"] for each in ended} == {"node-1", "node-2"}
    assert {each["status"]["phase"] for each in ended} == {"Succeeded"}
    (job,) = {each["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] for each in ended}
    names = {each["metadata"]["name"].rpartition("-")[0] for each in ended}
    assert names == {f"{job}-launcher-0-0", f"{job}-node-0-0"}


@pytest.mark.soak
def test_failed_mpi_rank_ends_the_job_with_its_cause(propeller):
    execution = propeller.start(training_tasks.reduces_with_mpi, images.MPI, value=-1)
    assert "ValueError: the learning rate is negative" in propeller.wait_for_failure(execution)


def load_initializers(cluster):
    """Load images with Trainer's initializers and its version of OpenDAL, a client of S3, into all nodes."""
    python, sources, packages = images.python(), trainer.find_sources(), find_packages("initializers")
    files = {
        f"app/{file.relative_to(root)}": file
        for root, folder in ((sources, sources / "pkg/initializers"), (packages, packages))
        for file in folder.rglob("*")
        if file.suffix in {".py", ".so"}
    }
    for kind, name in PluginSettings().initializer_images.items():
        image = replace(
            python,
            names=[name],
            files={**python.files, **files},
            environment={**python.environment, "PYTHONPATH": "/app"},
            entrypoint=["python", "-m", f"pkg.initializers.{kind}"],
        )
        cluster.load_image(image)


@pytest.fixture(scope="module")
def data(cluster, propeller, tmp_path_factory):
    """Nodes with the images of Trainer's initializers, and a data set and a model in an S3 store."""
    load_initializers(cluster)
    with S3(tmp_path_factory.mktemp("data"), cluster.plane.place) as store:
        store.write("numbers/numbers.txt", b"1 2 3 4 5 6 7")
        store.write("factor/factor.txt", b"3")
        known = dict(store.environment_at(GATEWAY))
        cluster.admin.create(build_manifest("v1", "Secret", "store", NAMESPACE, stringData=known))
        yield


def test_nodes_train_with_the_data_that_initializers_have_loaded(cluster, propeller, folder, data):
    add_volume(cluster.admin, "data", folder / "data")
    execution = propeller.start(training_tasks.reads_loaded_data)
    assert propeller.wait_for_outputs(execution) == {"o0": 84}
    ended = list_owned(cluster.admin, pods(NAMESPACE), execution)
    nodes = {
        each["spec"]["nodeName"]
        for each in ended
        if each["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] == "node"
    }
    assert nodes == {"node-1", "node-2"}


def test_data_that_cannot_be_loaded_fails_the_task_without_a_retry(cluster, propeller, folder, data):
    add_volume(cluster.admin, "absent-data", folder / "absent-data")
    execution = propeller.start(training_tasks.loads_absent_data)
    error = propeller.wait_for_failure(execution)
    assert "dataset-initializer-0 failed: exit code 1 (invalid-config)" in error
    assert "NoSuchBucket" in error
    assert (propeller.attempts(execution), count_restarts(cluster, execution)) == (1, 0)


def wait_for_size(stop_file, size):
    """Wait until the training has this world size. Its pods import torch, which takes long under load."""
    file = Path(f"{stop_file}.size")
    wait_for(lambda: file.read_text() if file.exists() else "", lambda found: found == str(size), 400)


def wait_for_replacements(cluster, execution, old):
    """Wait until the execution has two pods, and none of those with these uids."""
    wait_for(
        lambda: {each["metadata"]["uid"] for each in list_owned(cluster.admin, pods(NAMESPACE), execution)},
        lambda uids: len(uids) == 2 and not old & uids,
        120,
    )


@contextlib.contextmanager
def drained(cluster, node, execution):
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


def evict(cluster, pod):
    name = pod["metadata"]["name"]
    eviction = build_manifest("policy/v1", "Eviction", name, NAMESPACE)
    answer = cluster.admin.request("POST", f"{pods(NAMESPACE, name)}/eviction", eviction)
    assert answer.status_code == 201, answer.text


def set_unschedulable(cluster, node, *, unschedulable):
    cluster.admin.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": unschedulable}})
