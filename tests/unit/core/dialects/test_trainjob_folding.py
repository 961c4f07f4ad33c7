"""Tests of folding a master and workers into equal nodes."""

from typing import Any

import pytest
from train_job_objects import REPLICAS, plan_train_job

from backend_plugin.core.errors import InvalidTask

GPU = {"limits": [{"name": "GPU", "value": "1"}]}


def get_differences(**said: Any) -> dict[str, str]:
    """Return the values of each field that differs."""
    with pytest.raises(InvalidTask) as caught:
        plan_train_job({**REPLICAS, **said})
    problems = caught.value.problems
    assert {each.remedy for each in problems} == {"use PyTorchJob, or make them equal"}
    prefix = "master and worker: "
    assert all(each.field.startswith(prefix) for each in problems)
    return {each.field.removeprefix(prefix): each.value for each in problems}


def test_another_image_is_rejected_with_both_values() -> None:
    assert get_differences(workerReplicas={"replicas": 2, "image": "other:1"}) == {
        "image": '"image:1" and "other:1"'
    }


def test_other_resources_are_rejected_with_both_values() -> None:
    found = get_differences(masterReplicas={"replicas": 1, "resources": GPU})
    assert found.keys() == {"resources"}
    master, _, worker = found["resources"].partition(" and ")
    assert ("nvidia.com/gpu" in master, "nvidia.com/gpu" in worker) == (True, False)


@pytest.mark.parametrize(
    ("placement", "field", "value"),
    [
        ({"nodeSelector": {"pool": "a"}}, "nodeSelector", 'null and {"pool": "a"}'),
        ({"priorityClassName": "high"}, "priorityClassName", 'null and "high"'),
        (
            {"podTemplate": {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": []}}},
            "metadata.labels",
            None,
        ),
        (
            {
                "podTemplate": {
                    "spec": {
                        "containers": [
                            {"name": "primary", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
                        ]
                    }
                }
            },
            "containers",
            None,
        ),
    ],
)
def test_another_placement_is_rejected_with_both_values(
    placement: Any, field: str, value: str | None
) -> None:
    found = get_differences(kfpytorch={"worker": placement})
    assert field in found
    assert value is None or found == {field: value}


def test_all_differences_are_reported_together() -> None:
    found = get_differences(
        workerReplicas={"replicas": 2, "image": "other:1", "resources": GPU},
        kfpytorch={"worker": {"nodeSelector": {"pool": "a"}}},
    )
    assert {"image", "resources", "nodeSelector"} <= found.keys()


def test_a_master_or_workers_alone_are_nodes() -> None:
    for custom, nodes in (({"masterReplicas": {"replicas": 1}}, 1), (REPLICAS, 3)):
        assert plan_train_job(custom).job["spec"]["trainer"]["numNodes"] == nodes
