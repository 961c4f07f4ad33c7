# ruff: noqa: E501 - a row a case
"""Tests for the conversion of a task template to a TrainingJob."""

import pytest
from builders import decoded, reject
from msgspec import structs

from backend_plugin.core.job import GangOptions, ReplicaGroup, ReplicaRole, Resources

MASTER = ReplicaGroup(role=ReplicaRole.MASTER, replicas=1, restart_policy="Never")
TWO = {"workerReplicas": {"replicas": 2}}


def workers(replicas: int, **fields) -> ReplicaGroup:
    return ReplicaGroup(role=ReplicaRole.WORKER, replicas=replicas, **{"restart_policy": "Never", **fields})


def refusals(custom, **fields) -> list[str]:
    """Return the path below `custom` and the value of each problem."""
    problems = reject(decoded, custom, **fields)
    return [f"{problem.field.removeprefix('custom.')}={problem.value}" for problem in problems]


def of_masters(**fields):
    return {"masterReplicas": fields}


def of_workers(**fields):
    return {"workerReplicas": fields}


ALWAYS, FOUR = "RESTART_POLICY_ALWAYS", of_workers(replicas=4)
COMMON = {"replicas": 2, "image": "b"}
OF_MASTER = {"requests": [{"name": "CPU", "value": "2"}]}
OF_WORKER = {
    "requests": [{"name": 3, "value": "1Gi"}],
    "limits": [{"name": "GPU", "value": "8"}, {"name": "EPHEMERAL_STORAGE", "value": "9Gi"}],
}
PARSED = Resources(requests={"memory": "1Gi"}, limits={"nvidia.com/gpu": "8", "ephemeral-storage": "9Gi"})
ELASTIC = {"rdzvBackend": "c10d", "minReplicas": 1, "maxReplicas": 4, "nprocPerNode": 2}


RESTARTED = workers(1, restart_policy="Always")
OF_BOTH = {**of_masters(resources=OF_MASTER), **of_workers(replicas=1, resources=OF_WORKER)}
BOTH = (structs.replace(MASTER, resources=Resources(requests={"cpu": "2"})), workers(1, resources=PARSED))
NULLS = {**of_workers(replicas=4, image=None), "worker_replicas": None, "runPolicy": None}


@pytest.mark.parametrize(
    ("custom", "groups"),
    [
        ({**of_workers(replicas=2.0), "masterReplicas": {}}, (MASTER, workers(2))),
        ({"worker_replicas": {"replicas": "3"}}, (MASTER, workers(3))),
        ({**of_workers(), **of_masters(replicas=1)}, (MASTER,)),
        (of_workers(replicas=1, restartPolicy=1), (MASTER, workers(1, restart_policy="OnFailure"))),
        (of_workers(replicas=1, restartPolicy=ALWAYS, unknown={}), (MASTER, RESTARTED)),
        (of_workers(replicas=9, image="a", common=COMMON), (MASTER, workers(2, image="b"))),
        (OF_BOTH, BOTH),
        (NULLS, (MASTER, workers(4))),
        ({**FOUR, **of_masters(replicas=1), "elasticConfig": ELASTIC}, (workers(4, processes=2),)),
    ],
)
def test_replicas_are_parsed_like_protobuf_does(custom, groups):
    assert decoded(custom).groups == groups


def test_old_task_layout_is_decoded():
    assert decoded({"workers": 3.0}, taskTypeVersion=0).groups == (MASTER, workers(3))
    elastic = {"workers": 2, "elasticConfig": {**ELASTIC, "maxReplicas": 2}}
    assert decoded(elastic, taskTypeVersion=0).groups == (workers(2, processes=2),)


def test_null_extension_is_decoded_as_absent():
    assert decoded({"workers": 1, "kfpytorch": None}, taskTypeVersion=0).gang == GangOptions()


def test_invalid_type_or_version_of_a_task_is_rejected():
    assert refusals(TWO, type="spark") == ['type="spark"']
    assert refusals(TWO, taskTypeVersion=2) == ["taskTypeVersion=2"]
    assert refusals(TWO, taskTypeVersion=0) == ['workerReplicas={"replicas": 2.0}']
    assert refusals({"workers": -1}, taskTypeVersion=0) == ["workers=-1"]


def two_with(**extension):
    """Return the custom of two workers with fields below the key ``kfpytorch``."""
    return {**TWO, "kfpytorch": extension}


OF_TWO = {**ELASTIC, "minReplicas": 2}
NO_ELASTIC = {"minReplicas": 0, "maxReplicas": -1, "maxRestarts": -1}
NO_POLICY = {"cleanPodPolicy": 9, "backoffLimit": -1, "activeDeadlineSeconds": -2}
ODD_LIMITS = {"limits": [{"name": "STORAGE"}, {"name": 8}, {"name": "TPU"}]}
ODD_TOLERATIONS = [{"key": "a", "operator": "In"}, {"key": "b", "effect": "No"}]


@pytest.mark.parametrize(
    ("custom", "expected"),
    [
        ({}, "custom={}"),
        ({"runPolicy": {}}, 'custom={"runPolicy": {}}'),
        (of_workers(replicas=2.5), "workerReplicas.replicas=2.5"),
        (of_workers(replicas=2**31), "workerReplicas.replicas=2147483648.0"),
        (of_workers(replicas="two"), 'workerReplicas.replicas="two"'),
        (of_workers(replicas=True), "workerReplicas.replicas=true"),
        (of_workers(replicas=100001), "workerReplicas.replicas=100001"),
        (of_workers(image=1), "workerReplicas.image=1.0"),
        ({"workerReplicas": [2]}, "workerReplicas=[2.0]"),
        (of_workers(common={"replicas": -2}), "workerReplicas.common.replicas=-2"),
        (of_masters(restartPolicy="NEVER"), 'masterReplicas.restartPolicy="NEVER"'),
        ({**TWO, "worker_replicas": {}}, "worker_replicas={}"),
        ({**TWO, "elasticConfig": {}}, "elasticConfig={}"),
        ({**TWO, "elasticConfig": {**ELASTIC, "minReplicas": 3}}, "workerReplicas.replicas=2"),
        ({"elasticConfig": ELASTIC}, "workerReplicas.replicas=0"),
        ({**TWO, "kfpytorch": 1}, "kfpytorch=1.0"),
        (two_with(gang={"minMember": 4}), "kfpytorch.gang.minMember=4"),
        ({**two_with(gang={"minMember": 1}), "elasticConfig": OF_TWO}, "kfpytorch.gang.minMember=1"),
        (two_with(trainJob={"runtimeKind": "X"}), 'kfpytorch.trainJob.runtimeKind="X"'),
        ({**two_with(master={}), "elasticConfig": ELASTIC}, 'kfpytorch.master="{...}"'),
        (two_with(gang={"priorityClassName": ""}), 'kfpytorch.gang.priorityClassName=""'),
        (two_with(worker={"nodeSelector": {"a": 1}}), 'kfpytorch.worker.nodeSelector={"a": 1.0}'),
    ],
)
def test_invalid_custom_of_a_task_is_rejected(custom, expected):
    assert refusals(custom) == [expected]


@pytest.mark.parametrize(
    ("custom", "path", "values"),
    [
        ({**TWO, "runPolicy": NO_POLICY}, "runPolicy.", ["activeDeadlineSeconds=-2", "backoffLimit=-1", "cleanPodPolicy=9"]),
        (of_masters(resources=ODD_LIMITS), "masterReplicas.resources.limits[", ['2].name="TPU"', '0].name="STORAGE"', "1].name=8"]),
        ({**TWO, "elasticConfig": NO_ELASTIC}, "elasticConfig.", ["maxRestarts=-1", "nprocPerNode=0", "minReplicas=0", "maxReplicas=-1"]),
        (two_with(gang={"minMember": 0, "pendingTimeoutSeconds": -1}), "kfpytorch.gang.", ["minMember=0", "pendingTimeoutSeconds=-1"]),
        (two_with(worker={"tolerations": ODD_TOLERATIONS}), "kfpytorch.worker.tolerations[", ['0].operator="In"', '1].effect="No"']),
    ],
)  # fmt: skip
def test_all_problems_of_a_part_of_the_custom_are_reported(custom, path, values):
    assert refusals(custom) == [f"{path}{value}" for value in values]
