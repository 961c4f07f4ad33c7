"""Tests for the conversion of a TrainingJob and its pods to a PyTorchJob."""

import pytest
from builders import a_run, a_template, decoded

from backend_plugin.core.dialects.pytorchjob import manifest
from backend_plugin.core.errors import InvalidTask
from backend_plugin.core.job import ReplicaRole
from backend_plugin.core.pipeline import plan
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.settings import read


def test_job_larger_than_the_size_limit_is_rejected():
    containers = [{"name": "pytorch", "image": "i", "args": ["a" * 100_000] * 16}]
    message = r"the PyTorchJob=1,600,.* bytes: is larger than the limit of 1,572,864"
    with pytest.raises(InvalidTask, match=message):
        build_pod({"metadata": {"labels": {"a": "pod"}}, "spec": {"containers": containers}})


def build_pod(pod):
    draft = JobDraft(metadata={}, pods={ReplicaRole.MASTER: pod})
    built = manifest.build(decoded({"masterReplicas": {}}), draft)
    return built["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([{"containerPort": 80}, {"containerPort": 1, "name": "a"}], ["port-80", "a"]),
        ([{"containerPort": 23456}], ["pytorchjob-port"]),
        ([{"containerPort": 23456}, {"name": "pytorchjob-port"}], ["port-23456", "pytorchjob-port"]),
    ],
)
def test_ports_get_valid_service_port_names(ports, expected):
    containers = [{"name": "side", "ports": ports}, {"name": "pytorch", "ports": ports}]
    side, main = build_pod({"spec": {"containers": containers}})["containers"]
    assert [port["name"] for port in main["ports"]] == expected
    assert side == containers[0]


def test_pull_secret_is_listed_once_and_the_input_not_changed():
    pod = {"spec": {"containers": [], "imagePullSecrets": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}}
    before = repr(pod)
    assert build_pod(pod)["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert repr(pod) == before


@pytest.mark.parametrize(("ttl", "kept"), [(None, 3600), (0, 3600), (7, 7)])
def test_ttl_is_set_by_the_author_or_else_by_the_platform(ttl, kept):
    policy = {} if ttl is None else {"runPolicy": {"ttlSecondsAfterFinished": ttl}}
    settings = read({"kfpytorch": {"ttl-after-finished": "1h"}})
    job = plan(a_template({"masterReplicas": {}, **policy}), a_run(), settings).job
    assert job["spec"]["runPolicy"] == {"cleanPodPolicy": "None", "ttlSecondsAfterFinished": kept}
