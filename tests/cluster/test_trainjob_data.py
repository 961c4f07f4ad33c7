"""A data set and a model with the real Trainer and JobSet; the pods and the volume are simulated."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rig.api import pods
from rig.backend import Backend
from rig.caller import Caller, CallerAttempt, Shape
from rig.control_plane import ControlPlane
from rig.fake_nodes import BY_HAND
from rig.process import wait_until
from rig.scheduling import COSCHEDULING
from rig.stores import add_volume
from rig.trainer import TrainerCluster, build_runtime

from backend_plugin import client

NAMESPACE = "datasets"
SETTINGS = {"kfpytorch": {"dialect": "trainjob"}}
CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
GROUPS = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"
JOBSETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"
FOLDER = Path("/data")
"""The folder of all volumes, which no simulated pod mounts."""
OPTIONS = {
    "dataset": {"uri": "s3://data/digits", "env": {"REGION": "eu"}},
    "model": {"uri": "hf://owner/model"},
    "storage": {"size": "1Gi"},
}


@pytest.fixture(scope="module")
def plane(trainer_cluster: TrainerCluster) -> ControlPlane:
    return trainer_cluster.plane


def start(plane: ControlPlane, caller: Caller, options: Mapping[str, Any] = OPTIONS) -> CallerAttempt:
    """Create a volume and a job of two nodes with initializers, and return when these have nodes."""
    attempt = caller.attempt()
    add_volume(plane.admin, attempt.execution, FOLDER)
    custom = {"kfpytorch": {"version": 1, "trainJob": options}}
    caller.create(attempt, Shape(workers=1, annotations={BY_HAND: "yes"}, custom=custom))
    wait_for_pods(plane, attempt, "dataset-initializer-0", "model-initializer-0")
    return attempt


def wait_for_pods(plane: ControlPlane, attempt: CallerAttempt, *names: str) -> None:
    """Wait until these pods have nodes; a pod that runs already would get none."""

    def have_nodes() -> bool:
        found = list_pods(plane, attempt)
        return all(name in found and "nodeName" in found[name]["spec"] for name in names)

    def describe() -> str:
        events = plane.admin.items(f"/api/v1/namespaces/{NAMESPACE}/events")
        return str([each["message"] for each in events if attempt.job in each["involvedObject"]["name"]])

    wait_until(have_nodes, 60, describe)


def list_pods(plane: ControlPlane, attempt: CallerAttempt) -> Mapping[str, dict[str, Any]]:
    """Return the pods of a job by role and index."""
    found = plane.admin.items(pods(NAMESPACE), labelSelector=f"jobset.sigs.k8s.io/jobset-name={attempt.job}")
    labels = [each["metadata"]["labels"] for each in found]
    names = (
        f"{each['jobset.sigs.k8s.io/replicatedjob-name']}-{each['batch.kubernetes.io/job-completion-index']}"
        for each in labels
    )
    return dict(zip(names, found, strict=True))


def set_state(plane: ControlPlane, pod: Mapping[str, Any], phase: str, state: Mapping[str, Any]) -> None:
    """Write the state of the container of a pod, as the kubelet does."""
    (container,) = pod["spec"]["containers"]
    status = {
        "name": container["name"],
        "ready": phase == "Running",
        "state": dict(state),
        "image": container["image"],
        "imageID": "",
        "restartCount": 0,
    }
    plane.admin.patch(
        f"{pods(NAMESPACE, pod['metadata']['name'])}/status",
        {"status": {"phase": phase, "containerStatuses": [status]}},
    )


def run(plane: ControlPlane, attempt: CallerAttempt, *names: str) -> None:
    for name in names:
        began = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        set_state(plane, list_pods(plane, attempt)[name], "Running", began)


def end(plane: ControlPlane, attempt: CallerAttempt, name: str, code: int = 0, message: str = "") -> None:
    state = {
        "exitCode": code,
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:05Z",
        "reason": "Error" if code else "Completed",
        "message": message,
    }
    phase = "Failed" if code else "Succeeded"
    set_state(plane, list_pods(plane, attempt)[name], phase, {"terminated": state})


def wait_for(caller: Caller, attempt: CallerAttempt, phase: str, part: str = "") -> str:
    """Wait until the attempt has a phase and a part of its message, and return the message."""

    def is_there() -> bool:
        found = caller.get(attempt)
        return found.phase == phase and part in found.message

    wait_until(is_there, 60, lambda: str(caller.get(attempt)))
    return caller.get(attempt).message


def list_variables(pod: Mapping[str, Any]) -> Mapping[str, str]:
    (container,) = pod["spec"]["containers"]
    return {each["name"]: each.get("value", "") for each in container["env"]}


def list_mounts(pod: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Return path and subpath of each mount of the volume of the initializers."""
    (container,) = pod["spec"]["containers"]
    return [
        (each["mountPath"], each.get("subPath", ""))
        for each in container["volumeMounts"]
        if each["name"] == "initializer"
    ]


def test_nodes_start_after_the_data_is_loaded(plane: ControlPlane, caller: Caller, served: Any) -> None:
    attempt = start(plane, caller)
    loading = list_pods(plane, attempt)
    assert list_variables(loading["dataset-initializer-0"])["STORAGE_URI"] == "s3://data/digits"
    assert list_variables(loading["dataset-initializer-0"])["REGION"] == "eu"
    assert list_mounts(loading["model-initializer-0"]) == [("/workspace", "")]
    run(plane, attempt, "dataset-initializer-0", "model-initializer-0")
    wait_for(caller, attempt, "INITIALIZING", "the dataset is being loaded")
    shown = client.get_job(attempt.job, namespace=NAMESPACE, server=str(served.state))
    assert [each.role for each in shown.replicas] == ["dataset-initializer", "model-initializer"]
    end(plane, attempt, "dataset-initializer-0")
    wait_for(caller, attempt, "INITIALIZING", "the model is being loaded")
    assert "node-0" not in list_pods(plane, attempt)
    end(plane, attempt, "model-initializer-0")
    wait_for_pods(plane, attempt, "node-0", "node-1")
    node = list_pods(plane, attempt)["node-1"]
    assert list_mounts(node) == [("/workspace/dataset", "dataset"), ("/workspace/model", "model")]
    (volume,) = (each for each in node["spec"]["volumes"] if each["name"] == "initializer")
    assert volume["persistentVolumeClaim"]["claimName"] == f"initializer-{attempt.job}"
    run(plane, attempt, "node-0", "node-1")
    wait_for(caller, attempt, "RUNNING", "2 of 2 replicas ready")
    caller.succeeded(attempt)
    end(plane, attempt, "node-0")
    end(plane, attempt, "node-1")
    wait_for(caller, attempt, "SUCCEEDED")


@pytest.fixture
def ganging(plane: ControlPlane, served: Backend, tmp_path: Path) -> Iterator[Caller]:
    """A client of a second server, which runs all nodes of a job as a gang of co-scheduling."""
    gang = {"scheduler": "coscheduling", "pod-groups-by": "backend"}
    settings = {"kfpytorch": {**SETTINGS["kfpytorch"], "gang": gang}}
    with (
        Backend(plane, tmp_path, settings=settings) as served,
        Caller(served.endpoint, tmp_path, NAMESPACE, again=False) as caller,
    ):
        yield caller


def test_gang_has_the_nodes_and_not_the_initializers(plane: ControlPlane, ganging: Caller) -> None:
    attempt = start(plane, ganging)
    group = plane.admin.get(f"{GROUPS}/{attempt.job}")
    assert group is not None
    assert group["spec"]["minMember"] == 2
    run(plane, attempt, "dataset-initializer-0", "model-initializer-0")
    wait_for(ganging, attempt, "INITIALIZING", "the dataset is being loaded")
    end(plane, attempt, "dataset-initializer-0")
    end(plane, attempt, "model-initializer-0")
    wait_for_pods(plane, attempt, "node-0", "node-1")
    schedulers = {name: pod["spec"]["schedulerName"] for name, pod in list_pods(plane, attempt).items()}
    assert schedulers == {
        "dataset-initializer-0": "default-scheduler",
        "model-initializer-0": "default-scheduler",
        "node-0": COSCHEDULING,
        "node-1": COSCHEDULING,
    }
    run(plane, attempt, "node-0", "node-1")
    wait_for(ganging, attempt, "RUNNING", "2 of 2 replicas ready")
    ganging.delete(attempt)


def test_volume_belongs_to_the_job_and_is_deleted_with_it(plane: ControlPlane, caller: Caller) -> None:
    attempt = start(plane, caller)
    claim = plane.admin.get(f"{CLAIMS}/initializer-{attempt.job}")
    jobset = plane.admin.get(f"{JOBSETS}/{attempt.job}")
    assert claim is not None
    assert jobset is not None
    assert [each["uid"] for each in claim["metadata"]["ownerReferences"]] == [jobset["metadata"]["uid"]]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    caller.delete(attempt)
    wait_until(lambda: not list_pods(plane, attempt), 60, lambda: str(list_pods(plane, attempt)))

    path = f"{CLAIMS}/initializer-{attempt.job}"
    wait_until(lambda: plane.admin.get(path) is None, 60, lambda: str(plane.admin.get(path)))


def test_failed_initializer_ends_the_job_without_a_restart(plane: ControlPlane, caller: Caller) -> None:
    attempt = start(plane, caller, {**OPTIONS, "maxRestarts": 3})
    run(plane, attempt, "dataset-initializer-0", "model-initializer-0")
    end(plane, attempt, "model-initializer-0", 1, "RepositoryNotFoundError: 404 Client Error")
    message = wait_for(caller, attempt, "FAILED")
    assert message.startswith("model-initializer-0 failed: exit code 1 (invalid-config)")
    assert "RepositoryNotFoundError" in message
    jobset = plane.admin.get(f"{JOBSETS}/{attempt.job}")
    assert jobset is not None
    assert not jobset["status"].get("restarts")
    wait_until(
        lambda: "dataset-initializer-0" not in list_pods(plane, attempt),
        30,
        lambda: str(list_pods(plane, attempt).keys()),
    )


def add_runtime(plane: ControlPlane) -> None:
    """Create a runtime with the initializer of a data set."""
    runtime = build_runtime("ClusterTrainingRuntime", "loading", "image:1")
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    name = "dataset-initializer"
    mount = {"name": "initializer", "mountPath": "/workspace"}
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": name, "image": "image:1", "volumeMounts": [mount]}],
        "volumes": [{"name": "initializer", "emptyDir": {}}],
    }
    template = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": name}},
        "spec": {"template": {"metadata": {"annotations": {BY_HAND: "yes"}}, "spec": pod}},
    }
    jobs[0]["dependsOn"] = [{"name": name, "status": "Complete"}]
    jobs.insert(0, {"name": name, "template": template})
    plane.admin.apply(runtime)


def test_named_runtime_loads_the_data_before_its_node(plane: ControlPlane, caller: Caller) -> None:
    add_runtime(plane)
    options = {"runtime": "loading", "dataset": {"uri": "s3://data/digits"}}
    custom = {"kfpytorch": {"version": 1, "trainJob": options}}
    attempt = caller.create(shape=Shape(annotations={BY_HAND: "yes"}, custom=custom))
    name = "dataset-initializer-0"
    wait_for_pods(plane, attempt, name)
    pod = list_pods(plane, attempt)[name]
    assert list_variables(pod)["STORAGE_URI"] == "s3://data/digits"
    run(plane, attempt, name)
    wait_for(caller, attempt, "INITIALIZING", "the dataset is being loaded")
    assert list_pods(plane, attempt).keys() == {name}
    end(plane, attempt, name)
    wait_for_pods(plane, attempt, "node-0")
    run(plane, attempt, "node-0")
    wait_for(caller, attempt, "RUNNING")
    caller.delete(attempt)
