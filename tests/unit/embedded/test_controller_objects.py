"""The pods and services that the operator creates."""

from typing import Any

import pytest
from operated_jobs import LABEL, a_job, a_role, created_pods, list_actions, run_controller

from backend_plugin.embedded.operators.actions import CreateService

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


def test_a_master_and_its_workers_are_made_each_with_a_service() -> None:
    assert list_actions(run_controller(a_job(master={}, worker={"replicas": 2}))) == [
        "CreatePod job-master-0",
        "CreateService job-master-0",
        "CreatePod job-worker-0",
        "CreatePod job-worker-1",
        "CreateService job-worker-0",
        "CreateService job-worker-1",
    ]


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


def test_a_pod_is_its_template_with_the_operators_additions() -> None:
    worker = {"template": TEMPLATE, "restartPolicy": "ExitCode"}
    step = run_controller(a_job(master={}, worker=worker, nprocPerNode="2"))
    assert created_pods(step)["job-worker-0"] == MADE


def test_a_service_has_the_named_ports_of_the_training_container() -> None:
    ports = [{"name": "metrics", "containerPort": 9000}, {"containerPort": 1}, {"containerPort": 2}]
    template = {"spec": {"containers": [{"name": "pytorch", "image": "train:1", "ports": ports}]}}
    step = run_controller(a_job(worker={"template": template}))
    labels = {
        LABEL + "operator-name": "pytorchjob-controller",
        LABEL + "job-name": "job",
        LABEL + "replica-type": "worker",
        LABEL + "replica-index": "0",
    }
    made = [action.manifest for action in step.actions if isinstance(action, CreateService)]
    assert made == [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "job-worker-0",
                "namespace": "ns",
                "labels": labels,
                "ownerReferences": [OWNER],
            },
            "spec": {
                "clusterIP": "None",
                "selector": labels,
                # Ports without a name count as equal; the last one is kept.
                "ports": [
                    {"name": "metrics", "port": 9000},
                    {"port": 2},
                    {"name": "pytorchjob-port", "port": 23456},
                ],
            },
        }
    ]


def test_the_role_of_master_is_the_masters_or_the_first_workers() -> None:
    with_master = created_pods(run_controller(a_job(master={}, worker={"replicas": 2})))
    without = created_pods(run_controller(a_job(worker={"replicas": 2})))
    assert [name for name, pod in with_master.items() if LABEL + "job-role" in pod["metadata"]["labels"]] == [
        "job-master-0"
    ]
    assert [name for name, pod in without.items() if LABEL + "job-role" in pod["metadata"]["labels"]] == [
        "job-worker-0"
    ]


ELASTIC = {"PET_RDZV_ENDPOINT": "job-worker-0:23456", "PET_RDZV_BACKEND": "c10d", "PET_NNODES": "1:1"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"PET_NPROC_PER_NODE": "auto", "PET_NNODES": "1"}),
        ({"nprocPerNode": "gpu"}, {"PET_NPROC_PER_NODE": "gpu", "PET_NNODES": "1"}),
        ({"nprocPerNode": ""}, {"PET_NPROC_PER_NODE": "", "PET_NNODES": "1"}),
        ({"elasticPolicy": {}}, {"PET_NPROC_PER_NODE": "auto", **ELASTIC}),
        (
            {"elasticPolicy": {"minReplicas": 2}},
            {"PET_NPROC_PER_NODE": "auto", **ELASTIC, "PET_NNODES": "2:2"},
        ),
        (
            {"elasticPolicy": {"maxReplicas": 3}},
            {"PET_NPROC_PER_NODE": "auto", **ELASTIC, "PET_NNODES": "3:3"},
        ),
        ({"elasticPolicy": {"nProcPerNode": 4}}, {**ELASTIC, "PET_NPROC_PER_NODE": "4"}),
        (
            {
                "nprocPerNode": "2",
                "elasticPolicy": {
                    "rdzvHost": "elsewhere",
                    "rdzvPort": 99,
                    "rdzvBackend": "etcd",
                    "rdzvId": "a",
                    "rdzvConf": [{"key": "is_host", "value": "1"}, {"key": "timeout", "value": "9"}],
                    "maxRestarts": 3,
                    "standalone": False,
                    "minReplicas": 1,
                    "maxReplicas": 4,
                },
            },
            {
                "PET_NPROC_PER_NODE": "2",
                "PET_RDZV_ENDPOINT": "elsewhere:99",
                "PET_RDZV_BACKEND": "etcd",
                "PET_NNODES": "1:4",
                "PET_MAX_RESTARTS": "3",
                "PET_RDZV_ID": "a",
                "PET_RDZV_CONF": "is_host=1,timeout=9",
            },
        ),
    ],
)
def test_a_worker_is_told_how_to_find_the_others(spec: dict[str, Any], expected: dict[str, str]) -> None:
    pod = created_pods(run_controller(a_job(worker={}, **spec)))["job-worker-0"]
    assert list(environment(pod).items()) == [("PYTHONUNBUFFERED", "1"), *expected.items()]


@pytest.mark.parametrize(("processes", "world"), [("auto", "3"), ("cpu", "3"), ("4", "12"), ("+2", "6")])
def test_words_for_processes_count_as_one(processes: str, world: str) -> None:
    pods = created_pods(run_controller(a_job(master={}, worker={"replicas": 2}, nprocPerNode=processes)))
    assert [environment(pod)["WORLD_SIZE"] for pod in pods.values()] == [world] * 3
    assert [environment(pod)["RANK"] for pod in pods.values()] == ["0", "1", "2"]


def test_the_masters_own_port_is_everybodys() -> None:
    container = {"name": "pytorch", "image": "a", "ports": [{"name": "pytorchjob-port", "containerPort": 99}]}
    step = run_controller(a_job(master={"template": {"spec": {"containers": [container]}}}, worker={}))
    assert [environment(pod)["MASTER_PORT"] for pod in created_pods(step).values()] == ["99", "99"]


def test_a_restart_policy_in_a_template_is_overwritten_with_a_warning() -> None:
    template = a_role()["template"]
    template["spec"]["restartPolicy"] = "Always"
    step = run_controller(a_job(worker={"template": template}))
    assert created_pods(step)["job-worker-0"]["spec"]["restartPolicy"] == "Never"
    assert [(event["type"], event["reason"]) for event in step.events] == [
        ("Warning", "SetPodTemplateRestartPolicy")
    ]


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


@pytest.mark.parametrize(
    "job",
    [
        a_job(worker={}, runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}),
        a_job(),
        {**a_job(worker={}), "metadata": {"name": "job", "deletionTimestamp": "2026-01-01T12:00:00Z"}},
    ],
    ids=["somebody else's", "without roles", "deleted"],
)
def test_some_jobs_are_none_of_its_business(job: dict[str, Any]) -> None:
    step = run_controller(job)
    assert (step.status, step.actions, step.events, step.wake_at) == (None, (), (), None)
