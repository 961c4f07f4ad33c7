"""A fork server starts early only for a command that will run a script of this plugin locally."""

import subprocess
import sys
from pathlib import Path

import pytest

from kfpytorch_common.prestart import ScriptImports, find_script, read_script_imports

LOOK = """
import os, sys
sys.argv = sys.argv[1:]
import kfpytorch_common.prestart as prestart
try:
    found = os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    found = None
print([found, prestart._server is not None, "kfpytorch_common.forkserver" in sys.modules])
"""
NOTHING = "[None, False, False]"
STARTED = "[(0, 0), True, True]"
WRAPS = "from torch.nn.parallel import DistributedDataParallel"
IN_A_FUNCTION = "def train():\n    import torch\n    os.environ['A'] = 'b'\n"
OURS = "from flytekitplugins.kfpytorch import Elastic\n"
SWALLOWS = """
import signal
try:
    signal.raise_signal(signal.SIGINT)
except BaseException:
    print("swallowed")
"""


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("pyflyte run train.py main", "train.py"),
        ("/venv/bin/pyflyte run dir/train.py main --epochs 3", "dir/train.py"),
        ("pyflyte --config cluster.yaml -k pkg run -p project -d development train.py main", "train.py"),
        ("pyflyte run train.py main --remote", "train.py"),
        ("pyflyte run --envvars A=b train.py main --data other.py", "train.py"),
        ("pyflyte run train.py", None),
        ("pyflyte run train.py main --help", None),
        ("pyflyte run --remote train.py main", None),
        ("pyflyte run -p project -r -d development train.py main", None),
        ("pyflyte run", None),
        ("pyflyte register train.py", None),
        ("pyflyte-execute run train.py main", None),
        ("python run train.py main", None),
    ],
)
def test_script_is_found_in_the_command(command: str, script: str | None) -> None:
    assert find_script(command.split()) == (Path(script) if script else None)


@pytest.mark.parametrize(
    ("files", "needs"),
    [
        ({"train": "import torch.nn as nn"}, ScriptImports(torch_at_top=True)),
        ({"train": IN_A_FUNCTION}, ScriptImports()),
        ({"train": IN_A_FUNCTION + "from torch import nn"}, ScriptImports(torch_at_top=True)),
        ({"train": "import os\nos.environ['OMP_NUM_THREADS'] = '4'\nimport torch"}, ScriptImports()),
        ({"train": "import json, torch\nos.environ.update(A='b')"}, ScriptImports(torch_at_top=True)),
        ({"train": WRAPS}, ScriptImports(compiler=True, torch_at_top=True)),
        ({"train": "", "model": WRAPS}, ScriptImports()),
        ({"train": "import model", "model": WRAPS}, ScriptImports(compiler=True, torch_at_top=True)),
        ({"train": "from parts import model", "parts/model": WRAPS}, ScriptImports(True, True)),
        ({"train": "import parts", "parts/__init__": "import torch"}, ScriptImports(torch_at_top=True)),
        ({"train": "def f():\n    import model", "model": WRAPS}, ScriptImports(compiler=True)),
        ({"train": "import a", "a": "import b", "b": "import a, torch"}, ScriptImports(torch_at_top=True)),
        ({"train": "import torch, ("}, ScriptImports()),
        ({"train": "from dotenv import load_dotenv\nload_dotenv()\nimport torch"}, ScriptImports()),
        ({"train": "import a\nimport torch", "a": "import os\nos.environ['A'] = 'b'"}, ScriptImports()),
        ({"train": "import a\nimport torch", "a": IN_A_FUNCTION}, ScriptImports(torch_at_top=True)),
    ],
    ids=str,
)
def test_imports_of_a_script_are_read_from_its_text(tmp_path, files, needs) -> None:
    for name, text in files.items():
        (tmp_path / name).with_suffix(".py").parent.mkdir(exist_ok=True)
        (tmp_path / name).with_suffix(".py").write_text(text)
    assert read_script_imports(tmp_path / "train.py") == needs


def look(directory: Path, script: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Import the module in a process with the arguments of a local run of this script."""
    (directory / "train.py").write_text(script)
    command = [sys.executable, "-c", LOOK, "pyflyte", "run", directory / "train.py", "main"]
    return subprocess.run(command, env={"PATH": "", **env}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("script", "prestart", "expected"),
    [
        ("import flytekit\n", "", NOTHING),
        (OURS, "0", NOTHING),
        pytest.param(OURS, "", STARTED, marks=[pytest.mark.timeout(60), pytest.mark.linux]),
    ],
    ids=["not of this plugin", "switched off", "of this plugin"],
)
def test_server_starts_early_for_a_local_run_of_a_plugin_script(tmp_path, script, prestart, expected) -> None:
    # The server loads this module instead of torch.
    (tmp_path / "torch.py").touch()
    env = {"FLYTE_KFPYTORCH_PRESTART": prestart} if prestart else {}
    ran = look(tmp_path, script, PYTHONPATH=str(tmp_path), **env)
    assert (ran.stdout.strip(), ran.returncode) == (expected, 0)


@pytest.mark.timeout(60)
@pytest.mark.linux
def test_interrupt_during_the_import_of_torch_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(SWALLOWS)
    ran = look(tmp_path, f"import torch\n{OURS}", PYTHONPATH=str(tmp_path))
    assert (ran.stdout, ran.stderr.splitlines()[-1:]) == ("", ["KeyboardInterrupt"])
