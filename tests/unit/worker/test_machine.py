"""Resources of this machine, from the operating system."""

import os
from pathlib import Path
from typing import Any

import pytest

from flytekitplugins.kfpytorch.worker import machine
from flytekitplugins.kfpytorch.worker.topology import NoGpu


@pytest.mark.parametrize(
    ("driver", "visible", "expected"),
    [
        (3, None, ("0", "1", "2")),
        (3, "", ()),
        (3, "-1", ()),
        (3, "NoDevFiles", ()),
        (3, "0", ("0",)),
        (3, "2,0", ("2", "0")),
        (3, " 0 , 1 ", ("0", "1")),
        (3, "GPU-1a2b,MIG-3c4d", ("GPU-1a2b", "MIG-3c4d")),
        (3, "0,-1,1", ("0",)),
        (3, "0,7,1", ("0",)),
        ("no list", "0,7", ("0", "7")),
        ("no list", None, ()),
        (None, "0,1", ()),
    ],
)
def test_gpus_are_those_of_the_driver_that_are_visible(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    driver: int | str | None,
    visible: str | None,
    expected: tuple[str, ...],
) -> None:
    if driver is not None:
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev/nvidiactl").touch()
        count = driver if isinstance(driver, int) else 0
        lines = "".join(f"GPU {gpu}: NVIDIA H100 (UUID: GPU-{gpu})\n" for gpu in range(count))
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\nprintf '{lines}'\nexit {int(driver == 'no list')}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert machine.list_gpus(env, tmp_path) == expected


def test_this_machine_has_processors_and_memory() -> None:
    here = machine.detect_machine({"CUDA_VISIBLE_DEVICES": ""})
    assert 1 <= here.processors <= len(os.sched_getaffinity(0))
    assert 0 < here.memory <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert here.gpus == ()


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
