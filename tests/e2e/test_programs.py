"""User programs give equal results with the fork server, with fresh interpreters and with torchrun.

Each program depends on the state of its process in a way that no other test and no example does.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
TORCHRUN = Path(sys.executable).with_name("torchrun")
FLYTE = [sys.executable, "driver.py", "flyte"]
WAYS = {
    "fork server": (FLYTE, {"FLYTE_KFPYTORCH_FORK": "1"}),
    "fresh interpreters": (FLYTE, {"FLYTE_KFPYTORCH_FORK": "0"}),
    "torchrun": ([TORCHRUN, "--standalone", "--nproc-per-node=2", "driver.py", "plain"], {}),
}
NAMES = sorted({path.stem for path in PROGRAMS.glob("*.py")} - {"driver", "ranks"})
QUICK = "data_loader"  # `make test` runs this program, and `make soak` runs all.

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


def start(way, name, home):
    command, env = WAYS[way]
    home.mkdir()
    places = {"HOME": str(home), "FLYTE_KFPYTORCH_LOG_DIR": str(home / "logs")}
    return subprocess.Popen(
        [*command, name],
        cwd=PROGRAMS,
        env={**os.environ, **places, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def value_of(process, name):
    out, err = process.communicate()
    lines = [line for line in out.splitlines() if line.startswith(f"{name} ")]
    assert lines, f"{out}\n{err}"
    return json.loads(lines[-1].removeprefix(name))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == QUICK else pytest.mark.soak) for name in NAMES]
)
def test_program_result_is_equal_with_each_launch_method(name, tmp_path):
    running = {way: start(way, name, tmp_path / way.replace(" ", "-")) for way in WAYS}
    values = {way: value_of(process, name) for way, process in running.items()}
    assert values == dict.fromkeys(WAYS, values["torchrun"])
