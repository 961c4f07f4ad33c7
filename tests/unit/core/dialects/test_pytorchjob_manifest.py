"""Tests for the conversion of a TrainingJob and its pods to a PyTorchJob."""

from typing import Any

import pytest
from builders import a_run, a_template, decoded

from backend_plugin.core.dialects.pytorchjob import manifest
from backend_plugin.core.errors import InvalidTask
from backend_plugin.core.job import JobDraft, TrainingJob
from backend_plugin.core.pipeline import plan
from backend_plugin.core.settings import read

POD = {
    "metadata": {"labels": {"a": "pod"}, "annotations": {"b": "pod"}},
    "spec": {"containers": [{"name": "pytorch", "image": "i"}], "restartPolicy": "Never"},
}


def build(job: TrainingJob, metadata: Any, pods: list[Any], **given: Any) -> Any:
    roles = [group.role for group in job.groups]
    draft = JobDraft(metadata=metadata, pods=dict(zip(roles, pods, strict=True)), **given)
    return manifest.build(job, draft)


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([{"containerPort": 80}, {"containerPort": 1, "name": "a"}], ["port-80", "a"]),
        ([{"containerPort": 23456}], ["pytorchjob-port"]),
        ([{"containerPort": 23456}, {"name": "pytorchjob-port"}], ["port-23456", "pytorchjob-port"]),
        (["a port"], ["a port"]),
    ],
)
def test_ports_get_valid_service_port_names(ports: list[Any], expected: list[str]) -> None:
    spec = {
        "containers": [{"name": "side", "ports": ports}, {"name": "pytorch", "ports": ports}, "no container"]
    }
    manifest: Any = build(decoded({"masterReplicas": {}}), {}, [{"spec": spec}])
    side, main, none = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    assert [port["name"] if isinstance(port, dict) else port for port in main["ports"]] == expected
    assert (side, none) == (spec["containers"][0], "no container")


def test_pull_secret_is_listed_once() -> None:
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
def test_invalid_pod_spec_is_left_to_the_api_server(pod: Any, spec: Any) -> None:
    manifest: Any = build(decoded({"masterReplicas": {}}), {}, [pod])
    assert manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"] == spec


TASK = (
    '{"project":"project","domain":"development","execution":"f1","nodeId":"n0","taskProject":"project",'
    '"taskDomain":"development","taskName":"module.train","taskVersion":"v1","queueSeconds":9}'
)


def test_inputs_of_the_build_are_not_changed() -> None:
    before = repr(POD)
    build(decoded({"workerReplicas": {"replicas": 1}}), {"name": "a"}, [POD, POD])
    assert repr(POD) == before


@pytest.mark.parametrize(("ttl", "kept"), [(None, 3600), (0, 3600), (7, 7)])
def test_ttl_is_set_by_the_author_or_else_by_the_platform(ttl: int | None, kept: int) -> None:
    policy = {} if ttl is None else {"runPolicy": {"ttlSecondsAfterFinished": ttl}}
    settings = read({"kfpytorch": {"ttl-after-finished": "1h"}})
    job: Any = plan(a_template({"masterReplicas": {}, **policy}), a_run(), settings).job
    assert job["spec"]["runPolicy"] == {"cleanPodPolicy": "None", "ttlSecondsAfterFinished": kept}


def test_job_larger_than_the_size_limit_is_rejected() -> None:
    args = ["a" * 100_000] * 16
    pod = {**POD, "spec": {"containers": [{"name": "pytorch", "image": "i", "args": args}]}}
    job = decoded({"masterReplicas": {}})
    with pytest.raises(
        InvalidTask, match=r"template=1,600,.* bytes: makes the PyTorchJob larger than 1,572,864"
    ):
        build(job, {"name": "f1"}, [pod])
