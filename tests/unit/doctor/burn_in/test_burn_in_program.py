"""Tests of the burn-in's program, run with local ranks as in pods."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from backend_plugin.doctor.burn_in import results, runner

PROGRAM = Path(runner.__file__).with_name("program.py").read_text()

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]


def ranks(number: int) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(number)}
    env = {**os.environ, **world, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", PROGRAM, "60"]
    return [
        subprocess.Popen(command, env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(number)
    ]


def test_two_ranks_measure_and_only_rank_0_prints_the_result() -> None:
    first, second = ranks(2)
    with first, second:
        output, silence = first.communicate(timeout=100)[0], second.communicate(timeout=100)[0]
    assert (first.returncode, second.returncode) == (0, 0)
    assert silence == ""
    measured = results.find_measurement(output.splitlines())
    assert (measured.ranks, measured.hosts, measured.backend) == (2, 1, "gloo")
    assert [each.mebibytes for each in measured.sizes] == [1, 8, 32]
    for each in measured.sizes:
        assert each.algbw == pytest.approx(each.mebibytes * 2**20 / each.seconds / 1e9)
        # 2 (n - 1) / n for two ranks
        assert each.busbw == pytest.approx(each.algbw)
        assert each.busbw > 0
