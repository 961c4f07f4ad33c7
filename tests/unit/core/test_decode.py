"""Tests for the conversion of a task template to a TrainingJob."""

from typing import Any

import pytest
from builders import decoded
from msgspec import structs

from backend_plugin.core.errors import InvalidTask
from backend_plugin.core.job import ReplicaGroup, ReplicaRole, Resources

MASTER = ReplicaGroup(role=ReplicaRole.MASTER, replicas=1, restart_policy="Never")


def workers(replicas: int, **fields: Any) -> ReplicaGroup:
    return ReplicaGroup(role=ReplicaRole.WORKER, replicas=replicas, **{"restart_policy": "Never", **fields})


def refusals(custom: dict[str, Any], **fields: Any) -> list[str]:
    with pytest.raises(InvalidTask) as caught:
        decoded(custom, **fields)
    return [f"{problem.field}={problem.value}" for problem in caught.value.problems]


ELASTIC = {"rdzvBackend": "c10d", "minReplicas": 1, "maxReplicas": 4, "nprocPerNode": 2}


@pytest.mark.parametrize(
    ("custom", "groups"),
    [
        ({"workerReplicas": {"replicas": 2.0}, "masterReplicas": {}}, (MASTER, workers(2))),
        ({"worker_replicas": {"replicas": "3"}}, (MASTER, workers(3))),
        ({"workerReplicas": {}, "masterReplicas": {"replicas": 1}}, (MASTER,)),
        (
            {"workerReplicas": {"replicas": 1, "restartPolicy": 1}},
            (MASTER, workers(1, restart_policy="OnFailure")),
        ),
        (
            {"workerReplicas": {"replicas": 1, "restartPolicy": "RESTART_POLICY_ALWAYS", "unknown": {}}},
            (MASTER, workers(1, restart_policy="Always")),
        ),
        (
            {"workerReplicas": {"replicas": 9, "image": "a", "common": {"replicas": 2, "image": "b"}}},
            (MASTER, workers(2, image="b")),
        ),
        (
            {
                "masterReplicas": {"resources": {"requests": [{"name": "CPU", "value": "2"}]}},
                "workerReplicas": {
                    "replicas": 1,
                    "resources": {
                        "requests": [{"name": 3, "value": "1Gi"}],
                        "limits": [
                            {"name": "GPU", "value": "8"},
                            {"name": "EPHEMERAL_STORAGE", "value": "9Gi"},
                        ],
                    },
                },
            },
            (
                structs.replace(MASTER, resources=Resources(requests={"cpu": "2"})),
                workers(
                    1,
                    resources=Resources(
                        requests={"memory": "1Gi"}, limits={"nvidia.com/gpu": "8", "ephemeral-storage": "9Gi"}
                    ),
                ),
            ),
        ),
        (
            {"workerReplicas": {"replicas": 4, "image": None}, "worker_replicas": None, "runPolicy": None},
            (MASTER, workers(4)),
        ),
        (
            {"workerReplicas": {"replicas": 4}, "masterReplicas": {"replicas": 1}, "elasticConfig": ELASTIC},
            (workers(4, processes=2),),
        ),
    ],
)
def test_replicas_are_parsed_like_protobuf_does(
    custom: dict[str, Any], groups: tuple[ReplicaGroup, ...]
) -> None:
    assert decoded(custom).groups == groups


@pytest.mark.parametrize(
    ("custom", "groups"),
    [
        ({"workers": 3.0}, (MASTER, workers(3))),
        ({"workers": 2, "elasticConfig": {**ELASTIC, "maxReplicas": 2}}, (workers(2, processes=2),)),
    ],
)
def test_old_task_layout_is_decoded(custom: dict[str, Any], groups: tuple[ReplicaGroup, ...]) -> None:
    assert decoded(custom, taskTypeVersion=0).groups == groups


def test_null_extension_is_decoded_as_absent() -> None:
    assert decoded({"workers": 1, "kfpytorch": None}, taskTypeVersion=0).gang is None


TWO = {"workerReplicas": {"replicas": 2}}


@pytest.mark.parametrize(
    ("custom", "fields", "expected"),
    [
        (TWO, {"type": "spark"}, 'type="spark"'),
        (TWO, {"taskTypeVersion": 2}, "taskTypeVersion=2"),
        (TWO, {"taskTypeVersion": 0}, 'custom.workerReplicas={"replicas": 2.0}'),
        ({"workers": -1}, {"taskTypeVersion": 0}, "custom.workers=-1"),
    ],
)
def test_invalid_type_or_version_of_a_task_is_rejected(custom: Any, fields: Any, expected: str) -> None:
    assert refusals(custom, **fields) == [expected]


def two_with(**extension: Any) -> dict[str, Any]:
    """Return the custom of two workers with fields below the key ``kfpytorch``."""
    return {**TWO, "kfpytorch": extension}


NO_ELASTIC = {"minReplicas": 0, "maxReplicas": -1, "maxRestarts": -1}
TOLERATIONS = [
    {"key": "a", "operator": "In", "effect": "No"},
    {"value": "b"},
    {"operator": "Exists", "value": "c"},
]


@pytest.mark.parametrize(
    ("custom", "expected"),
    [
        ({}, ["custom={}"]),
        ({"runPolicy": {}}, ['custom={"runPolicy": {}}']),
        ({**TWO, "workers": 2}, ["custom.workers=2.0"]),
        ({"workerReplicas": {"replicas": 2.5}}, ["custom.workerReplicas.replicas=2.5"]),
        ({"workerReplicas": {"replicas": 2**31}}, ["custom.workerReplicas.replicas=2147483648.0"]),
        ({"workerReplicas": {"replicas": "two"}}, ['custom.workerReplicas.replicas="two"']),
        ({"workerReplicas": {"replicas": True}}, ["custom.workerReplicas.replicas=true"]),
        ({"workerReplicas": {"replicas": 100001}}, ["custom.workerReplicas.replicas=100001"]),
        ({"workerReplicas": {"image": 1}}, ["custom.workerReplicas.image=1.0"]),
        ({"workerReplicas": [2]}, ["custom.workerReplicas=[2.0]"]),
        ({"workerReplicas": {"common": {"replicas": -2}}}, ["custom.workerReplicas.common.replicas=-2"]),
        ({"masterReplicas": {"replicas": 2}}, ["custom.masterReplicas.replicas=2"]),
        ({"masterReplicas": {"restartPolicy": 7}}, ["custom.masterReplicas.restartPolicy=7"]),
        ({"masterReplicas": {"restartPolicy": "NEVER"}}, ['custom.masterReplicas.restartPolicy="NEVER"']),
        (
            {**TWO, "runPolicy": {"cleanPodPolicy": 9, "backoffLimit": -1, "activeDeadlineSeconds": -2}},
            [
                "custom.runPolicy.activeDeadlineSeconds=-2",
                "custom.runPolicy.backoffLimit=-1",
                "custom.runPolicy.cleanPodPolicy=9",
            ],
        ),
        ({**TWO, "worker_replicas": {}}, ["custom.worker_replicas={}"]),
        (
            {
                "masterReplicas": {
                    "resources": {"limits": [{"name": "STORAGE"}, {"name": 8}, {"name": "TPU"}]}
                }
            },
            [
                'custom.masterReplicas.resources.limits[2].name="TPU"',
                'custom.masterReplicas.resources.limits[0].name="STORAGE"',
                "custom.masterReplicas.resources.limits[1].name=8",
            ],
        ),
        ({**TWO, "elasticConfig": {}}, ["custom.elasticConfig={}"]),
        (
            {**TWO, "elasticConfig": NO_ELASTIC},
            [
                "custom.elasticConfig.maxRestarts=-1",
                "custom.elasticConfig.nprocPerNode=0",
                "custom.elasticConfig.minReplicas=0",
                "custom.elasticConfig.maxReplicas=-1",
            ],
        ),
        ({**TWO, "elasticConfig": {**ELASTIC, "minReplicas": 3}}, ["custom.workerReplicas.replicas=2"]),
        ({"elasticConfig": ELASTIC}, ["custom.workerReplicas.replicas=0"]),
        ({**TWO, "kfpytorch": 1}, ["custom.kfpytorch=1.0"]),
        (two_with(version=2), ["custom.kfpytorch.version=2"]),
        (two_with(gang={"minMember": 4}), ["custom.kfpytorch.gang.minMember=4"]),
        (
            {**two_with(gang={"minMember": 1}), "elasticConfig": {**ELASTIC, "minReplicas": 2}},
            ["custom.kfpytorch.gang.minMember=1"],
        ),
        (
            two_with(gang={"minMember": 0, "pendingTimeoutSeconds": -1}),
            ["custom.kfpytorch.gang.minMember=0", "custom.kfpytorch.gang.pendingTimeoutSeconds=-1"],
        ),
        (two_with(trainJob={"runtimeKind": "X"}), ['custom.kfpytorch.trainJob.runtimeKind="X"']),
        ({**two_with(master={}), "elasticConfig": ELASTIC}, ['custom.kfpytorch.master="{...}"']),
        (
            two_with(worker={"nodeSelector": {"a b": "c", "d": "e f"}}),
            ['custom.kfpytorch.worker.nodeSelector="a b"', 'custom.kfpytorch.worker.nodeSelector.d="e f"'],
        ),
        (
            two_with(master={"priorityClassName": "A"}, gang={"priorityClassName": ""}),
            ['custom.kfpytorch.master.priorityClassName="A"', 'custom.kfpytorch.gang.priorityClassName=""'],
        ),
        (
            two_with(worker={"nodeSelector": {"a": 1}}),
            ['custom.kfpytorch.worker.nodeSelector={"a": 1.0}'],
        ),
        (
            two_with(worker={"tolerations": TOLERATIONS}),
            [
                'custom.kfpytorch.worker.tolerations[0].operator="In"',
                'custom.kfpytorch.worker.tolerations[0].effect="No"',
                'custom.kfpytorch.worker.tolerations[1].key=""',
                'custom.kfpytorch.worker.tolerations[2].value="c"',
            ],
        ),
    ],
)
def test_invalid_custom_of_a_task_is_rejected(custom: dict[str, Any], expected: list[str]) -> None:
    assert refusals(custom) == expected
