"""The number of processes of a pod."""

from typing import Any

import pytest

from flytekitplugins.kfpytorch.worker import machine
from flytekitplugins.kfpytorch.worker.topology import NoGpu

JOB = {"PET_RDZV_ENDPOINT": "train-worker-0:23456"}


@pytest.mark.parametrize(
    ("asked", "env", "expected"),
    [
        (3, {**JOB, "PET_NPROC_PER_NODE": "8"}, 3),
        ("gpu", {**JOB, "PET_NPROC_PER_NODE": "8"}, 8),
        ("cpu", {**JOB, "PET_NPROC_PER_NODE": "8"}, 8),
        ("cpu", {**JOB, "PET_NPROC_PER_NODE": "auto"}, machine.count_processors()),
        ("cpu", {}, machine.count_processors()),
    ],
)
def test_process_count_of_a_job_comes_from_its_registration_or_the_pod(
    asked: Any, env: Any, expected: int
) -> None:
    assert machine.count_pod_processes(asked, env) == expected


@pytest.mark.torch
def test_pod_without_a_gpu_has_a_process_for_each_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.count_pod_processes("auto", {}) == machine.count_processors()
    with pytest.raises(NoGpu, match="this pod has none; request GPUs"):
        machine.count_pod_processes("gpu", {})
