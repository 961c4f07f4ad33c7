"""A second kind of job: one folder and one row for its dialect, and one of each for its operator."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
TOY = TESTS / "toyjob"


def with_toy(package):
    """Add the dialect and the operator as the first rows, so that they are the default."""
    for part, file, row in (
        ("core/dialects", "toy_dialect.py", "DIALECT"),
        ("embedded/operators", "toy_operator.py", "OPERATOR"),
    ):
        folder, table = package / part / "toyjob", package / part / "table.py"
        folder.mkdir()
        shutil.copy(TOY / file, folder / "__init__.py")
        text = table.read_text()
        old, new = f"_ROWS: Final = (pytorchjob.{row},", f"_ROWS: Final = (toyjob.{row}, pytorchjob.{row},"
        assert text.count(old) == text.count(" import pytorchjob") == 1
        table.write_text(text.replace(" import pytorchjob", " import toyjob, pytorchjob").replace(old, new))


def test_second_dialect_requires_one_folder_and_one_row(tmp_path):
    package = tmp_path / "code" / "backend_plugin"
    shutil.copytree(TESTS.parent / "backend_plugin", package, ignore=shutil.ignore_patterns("__pycache__"))
    with_toy(package)
    path = os.pathsep.join(map(str, (package.parent, TESTS, TESTS / "contract")))
    command = [sys.executable, TOY / "program.py", tmp_path / "run"]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # Each job has a free port of this machine, for which the operator's port is replaced.
    lines = {name: re.sub(r"\d+$", "PORT", line) for name, (line,) in found.pop("lines").items()}
    assert lines == {"master-0": "master 127.0.0.1:PORT", "worker-0": "worker 127.0.0.1:PORT"}
    assert found.pop("message") == "master-0 failed: exit code 3 (user-error)"
    assert found == {
        "package": str(package),
        "kind": ["toys.example.com/v1beta1", "ToyJob"],
        "containers": ["toy", "toy"],
        "verdicts": {"Playing": "RUNNING", "Done": "SUCCEEDED", "Broken": "RETRYABLE_FAILED"},
        "cancelled": {"seconds": 1, "keep": "Running"},
    }
