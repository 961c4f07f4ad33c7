"""Tests of the rig itself: its cluster runs a job."""

from rig.api import jobs, pods
from rig.control_plane import ControlPlane
from rig.fake_nodes import RUN
from rig.process import wait_until


def test_operator_of_the_rig_runs_a_job_to_success(plane: ControlPlane) -> None:
    plane.namespace("rig")
    replica = {
        "replicas": 1,
        "restartPolicy": "Never",
        "template": {
            "metadata": {"annotations": {RUN: "500ms"}},
            "spec": {"containers": [{"name": "pytorch", "image": "nothing:1"}]},
        },
    }
    plane.admin.create(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "first", "namespace": "rig"},
            "spec": {"pytorchReplicaSpecs": {"Master": replica}},
        }
    )

    def succeeded() -> bool:
        job = plane.admin.get(jobs("rig", "first"))
        assert job is not None
        return any(each["type"] == "Succeeded" for each in job.get("status", {}).get("conditions", []))

    wait_until(succeeded, 60, lambda: str(plane.admin.get(jobs("rig", "first"))))
    assert [each["status"]["phase"] for each in plane.admin.items(pods("rig"))] == ["Succeeded"]
