"""Tests of the options that select a Kubernetes cluster, and of their errors."""

import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from backend_plugin.cli.commands import kfpytorch

# Uses no torch, because it may not be installed.
TASK = """
from flytekit import task
from flytekitplugins.kfpytorch import PyTorch, Worker

@task(task_config=PyTorch(worker=Worker(replicas=1)), container_image="example.org/image:1")
def train() -> None: ...
"""
COMMANDS = {
    "doctor": ("doctor",),
    "gc": ("gc",),
    "render": ("render", "task_of_options.py", "train", "--dry-run=server"),
    "serve": ("serve", "--cluster", "kubernetes", "--allow-unauthenticated"),
}
CONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "here", "cluster": {"server": "https://127.0.0.1:9"}}],
    "users": [],
    "contexts": [{"name": "staging", "context": {"cluster": "here", "user": ""}}],
}


@pytest.fixture(autouse=True)
def a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "task_of_options.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    # All tests run in one process, and each has a file with this module name.
    monkeypatch.delitem(sys.modules, "task_of_options", raising=False)


def invoke(*words: str) -> Result:
    return CliRunner().invoke(kfpytorch, words)


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_context_is_an_error_with_its_name(tmp_path: Path, command: str) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(CONFIG))
    done = invoke(*COMMANDS[command], "--kubeconfig", str(file), "--context", "nope")
    assert done.exit_code == 1
    assert f"kubeconfig {file}: has no context nope" in done.output, done.output


@pytest.mark.parametrize("command", ["doctor", "gc", "render"])
def test_invalid_namespace_is_rejected(command: str) -> None:
    done = invoke(*COMMANDS[command], "--namespace", "Foo_Bar")
    output = " ".join(done.output.replace("│", "").split())
    assert (done.exit_code, "'Foo_Bar' is not a valid namespace name" in output) == (2, True), output


def test_namespace_pattern_is_accepted(tmp_path: Path) -> None:
    missing = str(tmp_path / "no")
    done = invoke("gc", "--namespace", "flytesnacks-*", "--kubeconfig", missing)
    assert (done.exit_code, "there is no such file" in done.output) == (1, True), done.output


def test_render_rejects_cluster_options_without_dry_run() -> None:
    for option in ("--kubeconfig", "--context"):
        done = invoke("render", "task_of_options.py", option, "x")
        assert done.exit_code == 2
        assert f"{option} has no effect without --dry-run=server" in done.output
