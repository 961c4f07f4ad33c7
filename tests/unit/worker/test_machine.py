"""Resources of this machine, from the operating system."""

import os
from pathlib import Path

import pytest

from flytekitplugins.kfpytorch.worker import machine


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
