"""Ranks import the module of a task, as a pod does, and run its function from there."""

import importlib
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flytekit.exceptions.user import FlyteUserRuntimeException

from kfpytorch_common.loaded_modules import list_source_files

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

HEADER = """
import functools, logging, os, sys, threading
import torch
from flytekit import dynamic, map_task, task, workflow
from flytekitplugins.kfpytorch import Elastic

PAIR = Elastic(nproc_per_node=2)
"""

Load = Callable[..., Any]


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.setenv("FLYTE_KFPYTORCH_LOG_DIR", str(tmp_path / "logs"))
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(name, text):
        file = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        file.parent.mkdir(exist_ok=True)
        file.write_text(HEADER + textwrap.dedent(text))
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield write
    for name, file in list_source_files().items():
        if name not in before and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


def test_module_statements_run_in_each_rank(load):
    module = load(
        "with_effects",
        """
        if "RANK" in os.environ:
            torch.manual_seed(3)
            torch.set_default_dtype(torch.float64)
            logging.basicConfig(level=7)
        LOCK = threading.Lock()  # It cannot be pickled.

        @task(task_config=PAIR)
        def train() -> list[str]:
            import torch.distributed as dist

            dist.init_process_group("gloo")
            everyone = [None] * 2
            with LOCK:
                mine = [torch.initial_seed(), torch.get_default_dtype(), logging.getLogger().level]
            mine.append(train is sys.modules["with_effects"].train)
            dist.all_gather_object(everyone, str(mine))
            return everyone
        """,
    )
    assert module.train() == ["[3, torch.float64, 7, True]"] * 2


def test_decorated_mapped_and_dynamic_tasks_of_a_package_run(load, tmp_path):
    load("parts.values", "OFFSET = 100")
    (tmp_path / "parts" / "__init__.py").touch()
    module = load(
        "parts.tasks",
        """
        from . import values

        def doubled(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                return 2 * function(*args, **kwargs)
            return wrapper

        @task(task_config=PAIR)
        @doubled
        def decorated(x: int) -> int:
            return x + values.OFFSET

        @workflow
        def several() -> list[int]:
            return map_task(decorated)(x=[1, 2])

        @dynamic
        def sweep() -> list[int]:
            return [decorated(x=step) for step in range(2)]
        """,
    )
    assert module.decorated(x=1) == 202
    assert module.several() == [202, 204]
    assert module.sweep() == [200, 202]


def test_import_error_in_a_rank_is_reported_with_its_line(load):
    module = load(
        "fails_in_ranks",
        """
        if "RANK" in os.environ:
            raise LookupError("no data here")

        @task(task_config=PAIR)
        def train() -> int:
            return 1
        """,
    )
    lines = Path(module.__file__).read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if "raise LookupError" in line)
    with pytest.raises(FlyteUserRuntimeException) as caught:
        module.train()
    for part in ("(user-error)", "LookupError: no data here", f"fails_in_ranks.py:{number} in <module>"):
        assert part in str(caught.value)


def test_edited_module_runs_the_function_of_the_caller(load, tmp_path):
    module = load("edited", "@task(task_config=PAIR)\ndef train() -> int:\n    return 1\n")
    file = tmp_path / "edited.py"
    file.write_text(file.read_text().replace("return 1", "return 22"))
    assert module.train() == 1


def test_module_value_changed_after_import_is_reported(load, capfd):
    text = "EPOCHS = 10\n\n@task(task_config=PAIR)\ndef train() -> int:\n    return EPOCHS\n"
    module = load("changed", text)
    assert module.train() == 10
    assert "warning" not in capfd.readouterr().err
    module.EPOCHS = 1
    assert module.train() == 10
    assert "EPOCHS = 1 (was 10)" in capfd.readouterr().err


def test_task_call_during_import_does_not_start_ranks_recursively(load, capfd):
    module = load(
        "runs_at_import",
        """
        @task(task_config=PAIR)
        def train() -> int:
            return 4

        if "RANK" in os.environ:
            train()
        """,
    )
    assert module.train() == 4
    assert "runs_at_import could not be imported in this rank" in capfd.readouterr().err


def run_script(path, text):
    path.write_text(HEADER + textwrap.dedent(text))
    return subprocess.run([sys.executable, path], check=False, capture_output=True, text=True, timeout=100)


FAILING = """
@task(task_config=PAIR)
def train() -> None:
    raise ValueError("no data")

if __name__ == "__main__":
    train()
"""


def test_uncaught_failure_in_a_script_prints_its_calls_and_the_report(tmp_path):
    path = tmp_path / "failing.py"
    ran = run_script(path, FAILING)
    calls, cross, report = ran.stderr.partition("Traceback")[2].partition("✗")
    assert (ran.returncode, cross) == (1, "✗")
    assert calls.splitlines()[1:] == [
        f'  File "{path}", line {len(path.read_text().splitlines())}, in <module>',
        "    train()",
    ]
    [logs] = [line.split() for line in report.splitlines() if line.startswith("  logs ")]
    assert Path(logs[1]).is_file()


def test_exception_hook_of_a_script_replaces_the_report(tmp_path):
    hook = "sys.excepthook = lambda kind, error, _: print('own', kind.__name__)"
    ran = run_script(tmp_path / "failing.py", f"{hook}\n{FAILING}")
    assert (ran.returncode, ran.stdout.split(), "Traceback" in ran.stderr) == (
        1,
        ["own", "ReplicaFailed"],
        False,
    )


def test_guarded_main_module_is_imported_in_the_ranks(tmp_path):
    ran = run_script(
        tmp_path / "guarded.py",
        """
        from dataclasses import dataclass

        torch.manual_seed(5)

        @dataclass
        class Settings:
            rate: float

        @task(task_config=PAIR)
        def train(settings: Settings) -> str:
            return f"{torch.initial_seed()} {isinstance(settings, Settings)}"

        if __name__ == "__main__":
            print(train(settings=Settings(rate=1.0)))
        """,
    )
    assert ran.stdout.splitlines() == ["5 True"], ran.stderr


def test_unguarded_main_module_is_not_imported_and_its_skipped_calls_are_reported(tmp_path):
    """Its function is pickled by value, with the values that it uses."""
    script = tmp_path / "unguarded.py"
    ran = run_script(
        script,
        """
        print("main runs")
        LIMIT = 5
        torch.set_default_dtype(torch.float64)

        def read_limit() -> int:
            return LIMIT

        @task(task_config=PAIR)
        def train() -> str:
            return f"{torch.zeros(1).dtype} {read_limit()}"

        print(train())
        """,
    )
    line = script.read_text().splitlines().index("torch.set_default_dtype(torch.float64)") + 1
    assert ran.stdout.splitlines() == ["main runs", "torch.float32 5"], ran.stderr
    [warning] = [each for each in ran.stderr.splitlines() if "warning" in each]
    assert f"torch.set_default_dtype (line {line})" in warning
