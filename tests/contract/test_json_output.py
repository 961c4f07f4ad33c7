"""The JSON output of the commands has the keys and types of the page about it, and no others."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from served_jobs import EXITED, FewNodes, ServedJobs, a_job, a_pod, serving_jobs

from backend_plugin import client
from backend_plugin.cli.commands import kfpytorch
from backend_plugin.core.observed import Job
from backend_plugin.core.runtimes import Runtime
from backend_plugin.shell import server_file

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json-output.md"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
SIMPLE = {
    "text": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "true or false": lambda value: isinstance(value, bool),
    "time": lambda value: isinstance(value, str) and bool(TIME.fullmatch(value)),
    "any": lambda _: True,
}


def tables() -> dict[str, dict[str, str]]:
    """Return the types of the keys of each table on the page."""
    parts = re.split(r"^## (\w+)$", PAGE.read_text(), flags=re.MULTILINE)
    rows = re.compile(r"^\| `(\w+)` \| ([^|]+) \|", re.MULTILINE)
    return {name: dict(rows.findall(text)) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


TABLES = tables()


def differences(value: Any, kind: str, path: str = "") -> Iterator[str]:
    """Yield where a value differs from its documented type."""
    if kind.endswith(" or null"):
        yield from () if value is None else differences(value, kind.removesuffix(" or null"), path)
    elif kind.startswith("list of "):
        for number, each in enumerate(value):
            yield from differences(each, kind.removeprefix("list of "), f"{path}[{number}]")
    elif kind.startswith("map of "):
        for key, each in value.items():
            yield from differences(each, kind.removeprefix("map of ").removesuffix("s"), f"{path}.{key}")
    elif kind in SIMPLE:
        yield from () if SIMPLE[kind](value) else (f"{path}: {value!r} is not {kind}",)
    else:
        yield from (f"{path}: {key}" for key in value.keys() ^ TABLES[kind].keys())
        for key in value.keys() & TABLES[kind].keys():
            yield from differences(value[key], TABLES[kind][key], f"{path}.{key}")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ServedJobs]:
    monkeypatch.setenv(server_file.STATE, str(tmp_path))
    with serving_jobs(nodes=FewNodes("node-0")) as served:
        served.apply(
            a_job("f1-n0-0-aaa", "Running"),
            a_pod("f1-n0-0-aaa", "worker-0"),
            a_job("f2-n0-0-bbb", "Running", "Failed", made=60),
            a_pod("f2-n0-0-bbb", "worker-0", EXITED, phase="Failed"),
        )
        served.cluster.runtimes.append(Runtime(name="torch", kind="ClusterTrainingRuntime"))
        served.cluster.foreign.append(Job(name="other", namespace="ns", dialect="TrainJob"))
        served.cluster.write("f1-n0-0-aaa-worker-0", 1, "hello")
        monkeypatch.setenv(client.SERVER, served.endpoint)
        yield served


def run(*arguments: str, code: int = 0, text: str = "") -> Any:
    result = CliRunner().invoke(kfpytorch, [*arguments, "-o", "json"], input=text)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("arguments", "kind", "code"),
    [
        (["jobs", "--all"], "list of Job", 0),
        (["describe", "f2"], "Job", 0),
        (["wait", "f2"], "Job", 1),
        (["logs", "f1"], "LogLine", 0),
        *((["cancel", each], "CancelJobResponse", 0) for each in ("f1", "f2")),
        (["nodes"], "list of Node", 0),
        (["runtimes", "list"], "list of Runtime", 0),
    ],
)
def test_server_output_matches_the_documentation(served, arguments, kind, code):
    value = run(*arguments, code=code)
    assert value
    assert [*differences(value, kind)] == []


def test_watched_and_explained_jobs_match_the_documentation(served: ServedJobs) -> None:
    served.succeed("f1-n0-0-aaa")
    value = run("describe", "f1", "--watch")
    assert value.pop("change") == "job"
    assert [*differences(value, "Job")] == []
    text = json.dumps({**a_job("f1-n0-0-aaa", "Running"), "apiVersion": "kubeflow.org/v1"})
    assert [*differences(run("explain", "-", text=text), "Explanation")] == []


def test_serve_check_report_matches_the_documentation(tmp_path: Path) -> None:
    arguments = ("serve", "--check", "--port", "0", "--state-dir", str(tmp_path))
    assert [*differences(run(*arguments), "Report")] == []
    assert [*differences(run(*arguments, "--nodes", "0", code=2), "Report")] == []
