"""Resources of this machine, from the operating system."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flytekitplugins.kfpytorch.worker import machine


@pytest.fixture
def driven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], Path]:
    """Return a function that simulates NVIDIA's driver and an ``nvidia-smi`` with this number of GPUs."""

    def make(count: int | None) -> Path:
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev/nvidiactl").touch()
        lines = "".join(f"GPU {gpu}: NVIDIA H100 (UUID: GPU-{gpu})\n" for gpu in range(count or 0))
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\nprintf '{lines}'\nexit {int(count is None)}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ("0", "1", "2")),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0", ("0",)),
        ("2,0", ("2", "0")),
        (" 0 , 1 ", ("0", "1")),
        ("GPU-1a2b,MIG-3c4d", ("GPU-1a2b", "MIG-3c4d")),
        ("0,-1,1", ("0",)),
        ("0,7,1", ("0",)),
    ],
)
def test_visible_gpus_are_read_from_the_environment(
    visible: str | None, expected: tuple[str, ...], driven: Callable[[int | None], Path]
) -> None:
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert machine.list_gpus(env, driven(3)) == expected


def test_environment_determines_the_gpus_if_the_driver_has_no_list(
    driven: Callable[[int | None], Path],
) -> None:
    root = driven(None)
    assert machine.list_gpus({"CUDA_VISIBLE_DEVICES": "0,7"}, root) == ("0", "7")
    assert machine.list_gpus({}, root) == ()


def test_machine_without_a_driver_has_no_gpu(tmp_path: Path) -> None:
    assert machine.list_gpus({"CUDA_VISIBLE_DEVICES": "0,1"}, tmp_path) == ()


def test_this_machine_has_processors_and_memory() -> None:
    here = machine.detect_machine({"CUDA_VISIBLE_DEVICES": ""})
    assert 1 <= here.processors <= len(os.sched_getaffinity(0))
    assert 0 < here.memory <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert here.gpus == ()
