"""Tests for the conversion of a task template to a TrainingJob."""

import pytest
from builders import decoded, reject
from msgspec import structs

from backend_plugin.core.job import ReplicaGroup, ReplicaRole, Resources

MASTER = ReplicaGroup(role=ReplicaRole.MASTER, replicas=1, restart_policy="Never")
TWO = {"workerReplicas": {"replicas": 2}}


def workers(replicas: int, **fields) -> ReplicaGroup:
    return ReplicaGroup(role=ReplicaRole.WORKER, replicas=replicas, **{"restart_policy": "Never", **fields})


def refusals(custom, **fields) -> list[str]:
    """Return the path below `custom` and the value of each problem."""
    return [
        f"{problem.field.removeprefix('custom.')}={problem.value}"
        for problem in reject(decoded, custom, **fields)
    ]


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


@pytest.mark.parametrize(
    ("custom", "groups"),
    [
        ({**of_workers(replicas=2.0), "masterReplicas": {}}, (MASTER, workers(2))),
        ({"worker_replicas": {"replicas": "3"}}, (MASTER, workers(3))),
        ({**of_workers(), **of_masters(replicas=1)}, (MASTER,)),
        (of_workers(replicas=1, restartPolicy=1), (MASTER, workers(1, restart_policy="OnFailure"))),
        (
            of_workers(replicas=1, restartPolicy=ALWAYS, unknown={}),
            (MASTER, workers(1, restart_policy="Always")),
        ),
        (of_workers(replicas=9, image="a", common=COMMON), (MASTER, workers(2, image="b"))),
        (
            {**of_masters(resources=OF_MASTER), **of_workers(replicas=1, resources=OF_WORKER)},
            (
                structs.replace(MASTER, resources=Resources(requests={"cpu": "2"})),
                workers(1, resources=PARSED),
            ),
        ),
        (
            {**of_workers(replicas=4, image=None), "worker_replicas": None, "runPolicy": None},
            (MASTER, workers(4)),
        ),
        ({**FOUR, **of_masters(replicas=1), "elasticConfig": ELASTIC}, (workers(4, processes=2),)),
    ],
)
def test_replicas_are_parsed_like_protobuf_does(custom, groups):
    assert decoded(custom).groups == groups


@pytest.mark.parametrize(
    ("custom", "groups"),
    [
        ({"workers": 3.0}, (MASTER, workers(3))),
        ({"workers": 2, "elasticConfig": {**ELASTIC, "maxReplicas": 2}}, (workers(2, processes=2),)),
    ],
)
def test_old_task_layout_is_decoded(custom, groups):
    assert decoded(custom, taskTypeVersion=0).groups == groups


def test_null_extension_is_decoded_as_absent():
    assert decoded({"workers": 1, "kfpytorch": None}, taskTypeVersion=0).gang is None


@pytest.mark.parametrize(
    ("custom", "fields", "expected"),
    [
        (TWO, {"type": "spark"}, 'type="spark"'),
        (TWO, {"taskTypeVersion": 2}, "taskTypeVersion=2"),
        (TWO, {"taskTypeVersion": 0}, 'workerReplicas={"replicas": 2.0}'),
        ({"workers": -1}, {"taskTypeVersion": 0}, "workers=-1"),
    ],
)
def test_invalid_type_or_version_of_a_task_is_rejected(custom, fields, expected):
    assert refusals(custom, **fields) == [expected]


def two_with(**extension):
    """Return the custom of two workers with fields below the key ``kfpytorch``."""
    return {**TWO, "kfpytorch": extension}


LIMITS = "masterReplicas.resources.limits"
OF_TWO = {**ELASTIC, "minReplicas": 2}
NO_ELASTIC = {"minReplicas": 0, "maxReplicas": -1, "maxRestarts": -1}


@pytest.mark.parametrize(
    ("custom", "expected"),
    [
        ({}, ["custom={}"]),
        ({"runPolicy": {}}, ['custom={"runPolicy": {}}']),
        ({"workerReplicas": {"replicas": 2.5}}, ["workerReplicas.replicas=2.5"]),
        ({"workerReplicas": {"replicas": 2**31}}, ["workerReplicas.replicas=2147483648.0"]),
        ({"workerReplicas": {"replicas": "two"}}, ['workerReplicas.replicas="two"']),
        ({"workerReplicas": {"replicas": True}}, ["workerReplicas.replicas=true"]),
        ({"workerReplicas": {"replicas": 100001}}, ["workerReplicas.replicas=100001"]),
        ({"workerReplicas": {"image": 1}}, ["workerReplicas.image=1.0"]),
        ({"workerReplicas": [2]}, ["workerReplicas=[2.0]"]),
        ({"workerReplicas": {"common": {"replicas": -2}}}, ["workerReplicas.common.replicas=-2"]),
        ({"masterReplicas": {"restartPolicy": "NEVER"}}, ['masterReplicas.restartPolicy="NEVER"']),
        (
            {**TWO, "runPolicy": {"cleanPodPolicy": 9, "backoffLimit": -1, "activeDeadlineSeconds": -2}},
            ["runPolicy.activeDeadlineSeconds=-2", "runPolicy.backoffLimit=-1", "runPolicy.cleanPodPolicy=9"],
        ),
        ({**TWO, "worker_replicas": {}}, ["worker_replicas={}"]),
        (
            of_masters(resources={"limits": [{"name": "STORAGE"}, {"name": 8}, {"name": "TPU"}]}),
            [f'{LIMITS}[2].name="TPU"', f'{LIMITS}[0].name="STORAGE"', f"{LIMITS}[1].name=8"],
        ),
        ({**TWO, "elasticConfig": {}}, ["elasticConfig={}"]),
        (
            {**TWO, "elasticConfig": NO_ELASTIC},
            [
                f"elasticConfig.{each}"
                for each in ("maxRestarts=-1", "nprocPerNode=0", "minReplicas=0", "maxReplicas=-1")
            ],
        ),
        ({**TWO, "elasticConfig": {**ELASTIC, "minReplicas": 3}}, ["workerReplicas.replicas=2"]),
        ({"elasticConfig": ELASTIC}, ["workerReplicas.replicas=0"]),
        ({**TWO, "kfpytorch": 1}, ["kfpytorch=1.0"]),
        (two_with(gang={"minMember": 4}), ["kfpytorch.gang.minMember=4"]),
        ({**two_with(gang={"minMember": 1}), "elasticConfig": OF_TWO}, ["kfpytorch.gang.minMember=1"]),
        (
            two_with(gang={"minMember": 0, "pendingTimeoutSeconds": -1}),
            ["kfpytorch.gang.minMember=0", "kfpytorch.gang.pendingTimeoutSeconds=-1"],
        ),
        (two_with(trainJob={"runtimeKind": "X"}), ['kfpytorch.trainJob.runtimeKind="X"']),
        ({**two_with(master={}), "elasticConfig": ELASTIC}, ['kfpytorch.master="{...}"']),
        (two_with(gang={"priorityClassName": ""}), ['kfpytorch.gang.priorityClassName=""']),
        (
            two_with(worker={"tolerations": [{"key": "a", "operator": "In"}, {"key": "b", "effect": "No"}]}),
            [f"kfpytorch.worker.tolerations{each}" for each in ('[0].operator="In"', '[1].effect="No"')],
        ),
        (two_with(worker={"nodeSelector": {"a": 1}}), ['kfpytorch.worker.nodeSelector={"a": 1.0}']),
    ],
)
def test_invalid_custom_of_a_task_is_rejected(custom, expected):
    assert refusals(custom) == expected
