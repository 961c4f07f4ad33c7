"""Tests for the conversion of a TrainingJob and its pods to a PyTorchJob."""

from dataclasses import replace
from typing import Any

import pytest
from builders import a_run, a_template, decoded

from backend_plugin.core.dialects.pytorchjob import manifest
from backend_plugin.core.errors import InvalidTask
from backend_plugin.core.job import Deadlines, JobDraft, JobRunPolicy, OwnerReference, TrainingJob
from backend_plugin.core.manifest.object_metadata import build_job_metadata
from backend_plugin.core.pipeline import plan
from backend_plugin.core.settings import read

IDENTITY = {"kfpytorch.flyte.org/job": "4fc1931eedf1c4eecc631a407eb6b39e37383653"}
POD = {
    "metadata": {"labels": {"a": "pod"}, "annotations": {"b": "pod"}},
    "spec": {"containers": [{"name": "pytorch", "image": "i"}], "restartPolicy": "Never"},
}
TEMPLATE = {
    "metadata": {"labels": {"a": "pod"}, "annotations": {"b": "pod"}},
    "spec": {"containers": [{"name": "pytorch", "image": "i"}]},
}
ELASTIC = {"minReplicas": 1, "maxReplicas": 2, "nprocPerNode": 4, "maxRestarts": 1}


def build(job: TrainingJob, metadata: Any, pods: list[Any], **given: Any) -> Any:
    roles = [group.role for group in job.groups]
    draft = JobDraft(metadata=metadata, pods=dict(zip(roles, pods, strict=True)), **given)
    return manifest.build(job, draft)


def test_a_master_and_its_workers() -> None:
    job = decoded(
        {
            "masterReplicas": {"restartPolicy": "RESTART_POLICY_ALWAYS"},
            "workerReplicas": {"replicas": 2},
            "runPolicy": {
                "cleanPodPolicy": "CLEANPOD_POLICY_ALL",
                "backoffLimit": 3,
                "activeDeadlineSeconds": 9,
            },
        }
    )
    assert build(job, {"name": "f1"}, [POD, POD]) == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "f1"},
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": TEMPLATE},
                "Worker": {"replicas": 2, "restartPolicy": "Never", "template": TEMPLATE},
            },
            "runPolicy": {"cleanPodPolicy": "All", "backoffLimit": 3, "activeDeadlineSeconds": 9},
        },
    }


def test_elastic_agents_are_told_where_they_meet() -> None:
    job = decoded({"workerReplicas": {"replicas": 2}, "elasticConfig": ELASTIC})
    assert build(job, {"name": "f1"}, [POD])["spec"] == {
        "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "Never", "template": TEMPLATE}},
        "runPolicy": {"cleanPodPolicy": "None"},
        "nprocPerNode": "4",
        "elasticPolicy": {
            "minReplicas": 1,
            "maxReplicas": 2,
            "rdzvBackend": "c10d",
            "rdzvId": "f1",
            "maxRestarts": 1,
        },
    }


def test_the_operator_does_not_clean_up_while_rank_0_writes() -> None:
    job = decoded({"workerReplicas": {"replicas": 2}, "elasticConfig": ELASTIC})
    cleaning = replace(job, run_policy=JobRunPolicy(clean_pod_policy="Running"))
    manifest: Any = build(cleaning, {"name": "f1", "annotations": {"a": "b"}}, [POD], ttl_seconds=1)
    assert manifest["metadata"]["annotations"] == {
        "a": "b",
        "kfpytorch.flyte.org/clean-pod-policy": "Running",
    }
    assert manifest["spec"]["runPolicy"] == {"cleanPodPolicy": "None", "ttlSecondsAfterFinished": 1}


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([{"containerPort": 80}, {"containerPort": 1, "name": "a"}], ["port-80", "a"]),
        ([{"containerPort": 23456}], ["pytorchjob-port"]),
        ([{"containerPort": 23456}, {"name": "pytorchjob-port"}], ["port-23456", "pytorchjob-port"]),
        (["a port"], ["a port"]),
    ],
)
def test_ports_have_names_as_services_need_them(ports: list[Any], expected: list[str]) -> None:
    spec = {
        "containers": [{"name": "side", "ports": ports}, {"name": "pytorch", "ports": ports}, "no container"]
    }
    manifest: Any = build(decoded({"masterReplicas": {}}), {}, [{"spec": spec}])
    side, main, none = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    assert [port["name"] if isinstance(port, dict) else port for port in main["ports"]] == expected
    assert (side, none) == (spec["containers"][0], "no container")


def test_a_pull_secret_is_named_once() -> None:
    spec = {"containers": [], "imagePullSecrets": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}
    manifest: Any = build(decoded({"masterReplicas": {}}), {}, [{"spec": spec}])
    made = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert made["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize(
    ("pod", "spec"),
    [
        ({}, {}),
        ({"spec": {"containers": "none"}}, {"containers": "none"}),
        ({"spec": {"imagePullSecrets": "none"}}, {"imagePullSecrets": "none"}),
    ],
)
def test_what_is_no_pod_is_left_to_the_api_server(pod: Any, spec: Any) -> None:
    manifest: Any = build(decoded({"masterReplicas": {}}), {}, [pod])
    assert manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"] == spec


TASK = (
    '{"project":"project","domain":"development","execution":"f1","nodeId":"n0","taskProject":"project",'
    '"taskDomain":"development","taskName":"module.train","taskVersion":"v1","queueSeconds":9}'
)


def test_a_job_has_what_its_pods_its_task_and_its_execution_say() -> None:
    template = a_template(
        {}, metadata={"metadata": {"labels": {"a": "task", "t": "t"}, "annotations": {"b": "task"}}}
    )
    owner = OwnerReference(api_version="v1", kind="K", name="n", uid="u")
    run = a_run(labels={"t": "run"}, annotations={"c": "run"}, owner=owner)
    assert build_job_metadata(template, run, Deadlines(queue_seconds=9), POD, longest_name=50) == {
        "name": "f1-n0-0-4fc1931eedf1",
        "namespace": "project-development",
        "labels": {
            "a": "task",
            "t": "run",
            "app.kubernetes.io/managed-by": "flytekitplugins-kfpytorch",
            "app.kubernetes.io/part-of": "flyte",
            **IDENTITY,
        },
        "annotations": {
            "b": "task",
            "c": "run",
            "kfpytorch.flyte.org/output-prefix": "s3://bucket/metadata/propeller/project-development-f1/n0/data/0",
            "kfpytorch.flyte.org/task": TASK,
        },
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "K",
                "name": "n",
                "uid": "u",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def test_nothing_given_is_changed() -> None:
    before = repr(POD)
    build(decoded({"workerReplicas": {"replicas": 1}}), {"name": "a"}, [POD, POD])
    assert repr(POD) == before


@pytest.mark.parametrize(("said", "kept"), [(None, 3600), (0, 3600), (7, 7)])
def test_a_job_is_kept_as_long_as_its_author_says_else_as_long_as_the_platform(
    said: int | None, kept: int
) -> None:
    policy = {} if said is None else {"runPolicy": {"ttlSecondsAfterFinished": said}}
    settings = read({"kfpytorch": {"ttl-after-finished": "1h"}})
    job: Any = plan(a_template({"masterReplicas": {}, **policy}), a_run(), settings).job
    assert job["spec"]["runPolicy"] == {"cleanPodPolicy": "None", "ttlSecondsAfterFinished": kept}


def test_a_job_that_no_cluster_keeps_is_refused() -> None:
    args = ["a" * 100_000] * 16
    pod = {**POD, "spec": {"containers": [{"name": "pytorch", "image": "i", "args": args}]}}
    job = decoded({"masterReplicas": {}})
    with pytest.raises(
        InvalidTask, match=r"template=1,600,.* bytes: makes the PyTorchJob larger than 1,572,864"
    ):
        build(job, {"name": "f1"}, [pod])
