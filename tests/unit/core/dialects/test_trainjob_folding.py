"""Tests of folding a master and workers into equal nodes."""

import pytest
from builders import decoded, reject
from train_job_objects import REPLICAS, plan_train_job

from backend_plugin.core.dialects.trainjob import folding


def of_worker(**placement):
    return {"kfpytorch": {"worker": placement}}


LABELLED = {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": []}}
WORKING = {"spec": {"containers": [{"name": "primary", "workingDir": "/v"}]}}


@pytest.mark.parametrize(
    ("fields", "field", "value"),
    [
        ({"workerReplicas": {"replicas": 2, "image": "other:1"}}, "image", '"image:1" and "other:1"'),
        (of_worker(priorityClassName="high"), "priorityClassName", 'null and "high"'),
        (of_worker(podTemplate=LABELLED), "metadata.labels.team", 'null and "a"'),
        (of_worker(podTemplate=WORKING), "workingDir", 'null and "/v"'),
    ],
)
def test_different_role_is_rejected_with_both_values(fields, field, value):
    (problem,) = reject(plan_train_job, {**REPLICAS, **fields})
    assert (problem.field, problem.value) == (f"master and worker: {field}", value)
    assert problem.remedy == "use PyTorchJob, or make them equal"


def test_master_or_workers_alone_are_nodes():
    for custom, nodes in (({"masterReplicas": {"replicas": 1}}, 1), (REPLICAS, 3)):
        assert plan_train_job(custom).job["spec"]["trainer"]["numNodes"] == nodes


def test_each_difference_of_sidecars_and_metadata_is_reported_by_field():
    def build_pod(image: str, **metadata):
        env = [{"name": "A", "value": image}]
        containers = [{"name": "node", "image": "i"}, {"name": "side", "image": image, "env": env}]
        return {"metadata": {"labels": {"a": "b"}, **metadata}, "spec": {"containers": containers}}

    job = decoded(REPLICAS)
    problems = reject(folding.fold, job, [build_pod("x"), build_pod("y", finalizers=["f"])])
    assert {each.field.partition(": ")[2]: each.value for each in problems} == {
        "side.image": '"x" and "y"',
        "side.env.A": '"x" and "y"',
        "metadata.finalizers": 'null and ["f"]',
    }
    folded, pods = folding.fold(job, [build_pod("x"), build_pod("x")])
    assert [(group.role.value, group.replicas) for group in folded.groups] == [("Node", 3)]
    assert pods == [build_pod("x")]
