"""Conversion of a config to the `custom` field of a task template."""

import pytest
from flytekit import Resources

from flytekitplugins.kfpytorch import Elastic, Master, PyTorch, RunPolicy, Worker
from flytekitplugins.kfpytorch.custom import encode_elastic, encode_pytorch, iter_ineffective_settings


def test_config_without_a_run_policy_is_encoded_without_one() -> None:
    encoded = {**encode_pytorch(PyTorch(num_workers=1)), **encode_elastic(Elastic(nnodes=2))}
    assert "runPolicy" not in encoded


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
        (PyTorch(worker=Worker(resources=Resources(mem=("2Gi", "1G")))), ["worker.resources.mem='2Gi'"]),
        (PyTorch(Master(requests=Resources(cpu=2), limits=Resources(cpu=1))), ["master.requests.cpu=2"]),
        (Elastic(nnodes=2, run_policy={"backoff_limit": 1}), []),
        (Elastic(nnodes=1, run_policy={"backoff_limit": 1}), ["run_policy= has no effect with nnodes=1"]),
    ],
)
def test_ineffective_setting_is_named(config: PyTorch | Elastic, expected: list[str]) -> None:
    assert [sentence.partition(":")[0] for sentence in iter_ineffective_settings(config)] == expected


def test_retries_of_each_role_are_encoded_for_a_train_job() -> None:
    encoded = encode_pytorch(PyTorch(Master(num_retries=3), Worker(replicas=1)))
    assert encoded["kfpytorch"] == {"version": 1, "master": {"numRetries": 3}}
