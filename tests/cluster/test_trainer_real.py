"""Tests of the rig: its Trainer and JobSet run a TrainJob, and their webhooks reject others."""

from typing import Any

import pytest
from rig.api import path_of, pods
from rig.control_plane import ControlPlane
from rig.fake_nodes import RUN
from rig.process import wait_until
from rig.trainer import API_VERSION, TrainerCluster, build_runtime

NAMESPACE = "trainer"


def trainjob(name: str = "first", **trainer: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "runtimeRef": {"kind": "TrainingRuntime", "name": "torch"},
            "trainer": {"numNodes": 2, "numProcPerNode": 3, **trainer},
        },
    }


@pytest.fixture(scope="module")
def plane(trainer_cluster: TrainerCluster) -> ControlPlane:
    """The control plane with a TrainingRuntime, which the webhook of TrainJobs has in its cache."""
    plane = trainer_cluster.plane
    plane.namespace(NAMESPACE)
    runtime = build_runtime("TrainingRuntime", "torch", "nothing:1", **{RUN: "500ms"})
    runtime["metadata"]["namespace"] = NAMESPACE
    plane.admin.create(runtime)
    wait_until(lambda: try_to_create(plane, trainjob())[0] == 201, 10, lambda: "the runtime is not found")
    return plane


def try_to_create(plane: ControlPlane, job: dict[str, Any]) -> tuple[int, str]:
    answer = plane.admin.request("POST", path_of(job), job, params={"dryRun": "All"})
    return answer.status_code, answer.text


def test_trainjob_with_two_nodes_completes(plane: ControlPlane) -> None:
    path = f"{path_of(plane.admin.create(trainjob()))}/first"

    def is_complete() -> bool:
        job = plane.admin.get(path)
        assert job is not None
        return any(each["type"] == "Complete" for each in job.get("status", {}).get("conditions", []))

    wait_until(is_complete, 60, lambda: str(plane.admin.get(path)))
    jobset = plane.admin.get(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets/first")
    assert jobset is not None
    assert jobset["status"]["terminalState"] == "Completed"
    found = plane.admin.items(pods(NAMESPACE))
    nodes = {pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]: pod for pod in found}
    assert sorted(nodes) == ["0", "1"]
    for index, pod in nodes.items():
        assert pod["spec"]["hostname"] == f"first-node-0-{index}"
        (container,) = pod["spec"]["containers"]
        env = {each["name"]: each.get("value") for each in container["env"]}
        assert container["name"] == "node"
        assert {name: value for name, value in env.items() if name.startswith("PET_")} == {
            "PET_NNODES": "2",
            "PET_NPROC_PER_NODE": "3",
            "PET_NODE_RANK": None,
            "PET_MASTER_ADDR": "first-node-0-0.first",
            "PET_MASTER_PORT": "29500",
        }


@pytest.mark.parametrize(
    ("job", "code", "value"),
    [
        (trainjob(env=[{"name": "PET_NNODES", "value": "1"}]), 403, "PET_NNODES"),
        (trainjob("first.job"), 422, "first.job"),
    ],
    ids=["by the webhook", "by the CRD"],
)
def test_invalid_trainjob_is_rejected(
    plane: ControlPlane, job: dict[str, Any], code: int, value: str
) -> None:
    answer = try_to_create(plane, job)
    assert answer[0] == code
    assert value in answer[1]
