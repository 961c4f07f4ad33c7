"""Structural rules that ruff, mypy and import-linter cannot check."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sources import list_imports

ROOT = Path(__file__).parent.parent
PACKAGES = ("backend_plugin", "flytekitplugins", "kfpytorch_common")
SOURCES = (*PACKAGES, "examples", "benchmarks")

DUPLICATE_PERCENT = 2.0

# Prints the packages that definitions of all kinds of tasks load in addition to flytekit.
DEFINE_TASKS = """
import sys
import flytekit
before = set(sys.modules)
from flytekitplugins.kfpytorch import Elastic, Master, PyTorch, RunPolicy, Worker

@flytekit.task(task_config=PyTorch(master=Master(), worker=Worker(replicas=2), run_policy=RunPolicy()))
def replicas() -> None: ...

@flytekit.task(task_config=Elastic(nnodes=2, nproc_per_node=2))
def elastic() -> None: ...

print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""
OURS = {"__main__", "flytekitplugins", "kfpytorch_common"}
# flytekit requires these packages, although it does not always load them.
WITH_FLYTEKIT = {"cloudpickle", "flyteidl", "flytekit", "google", "rich"}


def python_files(*folders):
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def format_path(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize(("folders", "limit"), [(SOURCES, 400), (("tests",), 500)])
def test_files_are_at_most_as_long_as_the_limit(folders, limit):
    lengths = {format_path(path): len(path.read_text().splitlines()) for path in python_files(*folders)}
    assert {name: length for name, length in lengths.items() if length > limit} == {}


def test_namespace_package_contains_no_files():
    assert [path.name for path in (ROOT / "flytekitplugins").iterdir() if path.is_file()] == []


@pytest.mark.parametrize("path", python_files("kfpytorch_common"), ids=format_path)
def test_common_package_imports_only_the_standard_library(path):
    allowed = sys.stdlib_module_names | {"kfpytorch_common"}
    assert list_imports(path) - allowed == set()


def test_defining_tasks_loads_neither_torch_nor_kubernetes():
    command = [sys.executable, "-c", DEFINE_TASKS]
    loaded = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    assert set(loaded) - sys.stdlib_module_names - OURS - WITH_FLYTEKIT == set()


@pytest.mark.timeout(300)
def test_duplicate_code_is_below_the_limit():
    ignored = [f"--ignore-{each}" for each in ("comments", "docstrings", "imports", "signatures")]
    command = [Path(sys.executable).with_name("symilar"), "--duplicates=6", *ignored]
    report = subprocess.run(
        [*command, *python_files(*PACKAGES)], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    assert float(report.rpartition("percent=")[2]) < DUPLICATE_PERCENT, report


JOB_FACT = re.compile(
    r"PyTorchJob|pytorchjob|pytorchReplicaSpecs|\bkubeflow\.org|\b23456\b|^pytorch$|^init-pytorch$"
)
JOB_FACT_FOLDERS = (
    "backend_plugin/core/dialects/pytorchjob/",
    # The API group of TrainJobs has the same suffix, and messages recommend the other kind.
    "backend_plugin/core/dialects/trainjob/",
    "backend_plugin/embedded/operators/trainjob/",
    "backend_plugin/embedded/operators/pytorchjob/",
    "backend_plugin/doctor/operators/",
)
# The Flyte task type is not a fact about a job. The help of a command shows examples.
ALLOWED_NAMES = ("TASK_TYPE", "_TASK_TYPE", "_HELP", "help")


def iter_job_facts(node):
    """Yield the constants with a fact about PyTorchJobs, except docstrings and values of allowed names."""
    if isinstance(node, ast.Constant):
        if JOB_FACT.search(str(node.value)):
            yield f"line {node.lineno}: {node.value}"
        return
    for child in ast.iter_child_nodes(node):
        is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if not is_docstring and get_target(child) not in ALLOWED_NAMES:
            yield from iter_job_facts(child)


def get_target(node):
    """Return the name to which an assignment or an argument gives a value."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return node.arg if isinstance(node, ast.keyword) else None


def test_pytorchjob_facts_are_only_in_its_folders():
    found = {
        name: facts
        for path in python_files(*PACKAGES)
        if not (name := format_path(path)).startswith(JOB_FACT_FOLDERS)
        and (facts := [*iter_job_facts(ast.parse(path.read_text()))])
    }
    assert found == {}


def test_each_test_file_that_ci_selects_exists():
    scripts = [*(ROOT / ".ci").iterdir(), ROOT / "Makefile"]
    named = {path for each in scripts for path in re.findall(r"\btests/[\w/]+\.py\b", each.read_text())}
    assert named
    assert {path for path in named if not (ROOT / path).exists()} == set()
