"""Conversion of a config to the `custom` field of a task template."""

import json
from dataclasses import fields

import pytest
from flyteidl.plugins.kubeflow.pytorch_pb2 import DistributedPyTorchTrainingTask
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from flytekitplugins.kfpytorch import (
    CleanPodPolicy,
    Elastic,
    Master,
    PyTorch,
    RestartPolicy,
    RunPolicy,
    Worker,
)
from flytekitplugins.kfpytorch.custom import encode_elastic, encode_pytorch, iter_ineffective_settings

COUNTS = st.integers(0, 2**31 - 1)
RUN_POLICIES = st.none() | st.builds(
    RunPolicy,
    clean_pod_policy=st.none() | st.sampled_from(CleanPodPolicy),
    ttl_seconds_after_finished=st.none() | COUNTS,
    active_deadline_seconds=st.none() | COUNTS,
    backoff_limit=st.none() | COUNTS,
)
RESTARTS = st.none() | st.sampled_from(RestartPolicy)
PYTORCHES = st.builds(
    PyTorch,
    master=st.builds(Master, image=st.none() | st.text("aZ0:./@{ é"), restart_policy=RESTARTS),
    worker=st.builds(
        Worker, image=st.none() | st.text("aZ0:./@{ é"), replicas=COUNTS, restart_policy=RESTARTS
    ),
    run_policy=RUN_POLICIES,
)
ELASTICS = st.builds(
    Elastic,
    nnodes=st.integers(2, 99) | st.tuples(st.integers(1, 9), st.integers(9, 99)).map("{0[0]}:{0[1]}".format),
    nproc_per_node=st.integers(1, 16),
    max_restarts=COUNTS,
    run_policy=RUN_POLICIES,
)


def is_encoded(policy: RunPolicy | None, job: DistributedPyTorchTrainingTask) -> bool:
    """True if the message has the run policy; an unset field is 0, as in protobuf."""
    if policy is None:
        return not job.HasField("run_policy")
    values = {field.name: getattr(policy, field.name) for field in fields(RunPolicy)}
    numbers = {name: getattr(value, "value", value) or 0 for name, value in values.items()}
    return job.HasField("run_policy") and numbers == {name: getattr(job.run_policy, name) for name in numbers}


@given(PYTORCHES)
def test_pytorch_config_is_encoded_without_loss(config: PyTorch) -> None:
    job = ParseDict(json.loads(json.dumps(encode_pytorch(config))), DistributedPyTorchTrainingTask())
    assert [
        (replicas.replicas, replicas.image, replicas.restart_policy)
        for replicas in (job.master_replicas, job.worker_replicas)
    ] == [
        (count, role.image or "", 0 if role.restart_policy is None else role.restart_policy.value)
        for count, role in ((1, config.master), (config.worker.replicas, config.worker))
    ]
    assert is_encoded(config.run_policy, job)


@given(ELASTICS)
def test_elastic_config_is_encoded_without_loss(config: Elastic) -> None:
    job = ParseDict(json.loads(json.dumps(encode_elastic(config))), DistributedPyTorchTrainingTask())
    elastic = job.elastic_config
    assert (elastic.min_replicas, elastic.max_replicas) == config.min_max_nodes()
    assert (elastic.nproc_per_node, elastic.max_restarts) == (config.nproc_per_node, config.max_restarts)
    assert (job.worker_replicas.replicas, elastic.rdzv_backend) == (elastic.max_replicas, "c10d")
    assert is_encoded(config.run_policy, job)


def test_encoding_does_not_change_the_config() -> None:
    config = PyTorch(Master(num_retries=2), Worker(replicas=2), {"backoff_limit": None})
    encode_pytorch(config)
    assert config == PyTorch(Master(num_retries=2), Worker(replicas=2), {"backoff_limit": None})


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (PyTorch(), []),
        (PyTorch(run_policy=RunPolicy(active_deadline_seconds=1)), []),
        (PyTorch(run_policy={"backoff_limit": 0}), ["run_policy.backoff_limit=0 has no effect"]),
        (Elastic(nnodes=2, run_policy={"backoff_limit": 1}), []),
        (Elastic(nnodes=1, run_policy={"backoff_limit": 1}), ["run_policy= has no effect with nnodes=1"]),
    ],
)
def test_ineffective_setting_is_named(config: PyTorch | Elastic, expected: list[str]) -> None:
    assert [sentence.partition(":")[0] for sentence in iter_ineffective_settings(config)] == expected


def test_retries_of_each_role_are_encoded_for_a_train_job() -> None:
    encoded = encode_pytorch(PyTorch(Master(num_retries=3), Worker(replicas=1)))
    assert encoded["kfpytorch"] == {"version": 1, "master": {"numRetries": 3}}
