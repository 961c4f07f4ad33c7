"""The pods and services that the operator creates."""

from typing import Any

import pytest
from operated_jobs import LABEL, a_job, run_controller

OWNER = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "name": "job",
    "uid": "uid-job",
    "controller": True,
    "blockOwnerDeletion": True,
}
MASTER_SAYS = {
    "MASTER_PORT": "23456",
    "PET_MASTER_PORT": "23456",
    "MASTER_ADDR": "job-master-0",
    "PET_MASTER_ADDR": "job-master-0",
}


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}


TEMPLATE: Any = {
    "metadata": {
        "name": "ignored",
        "labels": {"team": "a", LABEL + "job-name": "mine"},
        "annotations": {"note": "x"},
        "finalizers": ["example.com/kept"],
    },
    "spec": {
        "containers": [
            {"name": "side", "image": "side:1"},
            {"name": "pytorch", "image": "train:1", "env": [{"name": "RANK", "value": "mine"}]},
        ],
        "initContainers": [{"name": "mine", "image": "init:1"}],
        "nodeSelector": {"disk": "fast"},
    },
}
ADDED = [
    {"name": name, "value": value}
    for name, value in {
        "PYTHONUNBUFFERED": "1",
        **MASTER_SAYS,
        "WORLD_SIZE": "4",
        "RANK": "1",
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": "2",
        "PET_NNODES": "2",
    }.items()
]
WAITING = (
    "err=1;for i in $(seq 100); do if nslookup job-master-0; then err=0 && break; fi;"
    "echo waiting for master; sleep 2; done; exit $err"
)
MADE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "job-worker-0",
        "namespace": "ns",
        "labels": {
            "team": "a",
            LABEL + "operator-name": "pytorchjob-controller",
            LABEL + "job-name": "job",
            LABEL + "replica-type": "worker",
            LABEL + "replica-index": "0",
        },
        "annotations": {"note": "x"},
        "finalizers": ["example.com/kept"],
        "ownerReferences": [OWNER],
    },
    "spec": {
        "containers": [
            {"name": "side", "image": "side:1", "env": ADDED},
            {
                "name": "pytorch",
                "image": "train:1",
                "ports": [{"name": "pytorchjob-port", "containerPort": 23456, "protocol": "TCP"}],
                "env": [{"name": "RANK", "value": "mine"}, *ADDED],
            },
        ],
        "initContainers": [
            {"name": "mine", "image": "init:1"},
            {
                "name": "init-pytorch",
                "image": "alpine:3.10",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", WAITING],
                "resources": {
                    "limits": {"cpu": "100m", "memory": "20Mi"},
                    "requests": {"cpu": "50m", "memory": "10Mi"},
                },
            },
        ],
        "nodeSelector": {"disk": "fast"},
        "restartPolicy": "Never",
    },
}


ELASTIC = {"PET_RDZV_ENDPOINT": "job-worker-0:23456", "PET_RDZV_BACKEND": "c10d", "PET_NNODES": "1:1"}


NAMELESS = {"spec": {"containers": [{"name": "main", "image": "a"}]}}


@pytest.mark.parametrize(
    "job",
    [
        a_job(master={"template": NAMELESS}),
        a_job(master={}, elasticPolicy={}),
        a_job(worker={"template": NAMELESS}, elasticPolicy={}),
    ],
    ids=["no port of the master's", "no worker to meet at", "no port of the worker's"],
)
def test_where_a_replica_could_not_be_told_all_it_is_not_made(job: dict[str, Any]) -> None:
    step = run_controller(job)
    assert (step.status, step.actions) == (None, ())
