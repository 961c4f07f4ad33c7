"""Golden tests: the plan of each example task and of each request, and the verdict of each observed state.

A folder contains ``plan.yaml``, or ``problems.yaml`` for a rejected task. A case that is not an example also
has ``request.json``, a line for ``kfpytorch render --batch``. A file ``verdicts/<table>/<row>.yaml`` has a
line for ``kfpytorch explain --batch`` under ``request`` and the result under ``verdict``.

``UPDATE=1 pytest tests/golden`` rewrites the results; review the diff before you commit it.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
import yaml

from backend_plugin.cli import explain, json_lines, python_file, render_requests, sample_attempt
from backend_plugin.core import settings
from backend_plugin.core.errors import InvalidTask
from backend_plugin.core.judging import pending_reasons, terminations, verdict
from backend_plugin.core.pipeline import plan

HERE = Path(__file__).parent
EXAMPLES = sorted((HERE.parent.parent / "examples").glob("[0-9]*.py"))
FOLDERS = {path.name for path in HERE.iterdir() if path.is_dir()} - {"__pycache__", "verdicts"}
TASKS = sorted(name for name in FOLDERS if "." in name)
REQUESTS = sorted(path.parent.name for path in HERE.glob("*/request.json"))


def plan_example(name: str):
    module, _, task = name.partition(".")
    path = next(each for each in EXAMPLES if each.stem == module)
    template = python_file.load_task(path, task, image="example.org/image:1").template
    template, run = sample_attempt.build_attempt(template, {})
    return {"manifests": plan(template, run, settings.read({})).manifests}


def answered(name: str):
    try:
        if name in TASKS:
            return plan_example(name)
        return render_requests.render_manifests(json.loads((HERE / name / "request.json").read_text()))
    except InvalidTask as refusal:
        return {"problems": [msgspec.to_builtins(problem) for problem in refusal.problems]}


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.torch) for name in TASKS), *REQUESTS]
)
def test_plan_equals_the_golden_file(name):
    ((kind, value),) = answered(name).items()
    folder = HERE / name
    written = {"manifests": "plan.yaml", "problems": "problems.yaml"}[kind]
    text = yaml.safe_dump_all(msgspec.json.decode(json_lines.encode_json(value)), sort_keys=True, width=110)
    if os.environ.get("UPDATE"):
        for old in folder.glob("*.yaml"):
            old.unlink()
        (folder / written).write_text(text)
    assert {path.name: path.read_text() for path in folder.glob("*.yaml")} == {written: text}


def test_each_example_and_folder_is_a_test_case():
    assert {path.stem for path in EXAMPLES} == {name.partition(".")[0] for name in TASKS}
    assert {*TASKS, *REQUESTS} == FOLDERS


CASES = sorted(HERE.glob("verdicts/*/*.yaml"))
# The folder of each table, and the names of its rows.
TABLES: dict[str, Iterable[object]] = {
    "container_reasons": terminations.CONTAINER_REASONS,
    "container_waits": pending_reasons.CONTAINER_CAUSES,
    "disruptions": terminations.DISRUPTIONS,
    "exit_codes": terminations.EXIT_CODES,
    "pod_reasons": terminations.POD_REASONS,
    "refusals": [part.replace(" ", "_") for part, _ in pending_reasons.REFUSALS],
}


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_verdict_equals_the_golden_file(path):
    case = yaml.safe_load(path.read_text())
    found = msgspec.json.decode(json_lines.encode_json(explain.judge_request(case["request"])))
    if os.environ.get("UPDATE"):
        path.write_text(yaml.safe_dump({**case, "verdict": found}, sort_keys=True, width=110))
    else:
        assert found == case["verdict"]


@pytest.mark.parametrize("table", TABLES)
def test_each_table_row_is_a_test_case(table):
    assert {path.stem for path in (HERE / "verdicts" / table).iterdir()} >= {
        str(row) for row in TABLES[table]
    }


def test_each_phase_is_the_verdict_of_a_test_case():
    phases = {yaml.safe_load(path.read_text())["verdict"]["phase"] for path in CASES}
    assert phases == {phase.value for phase in verdict.Phase} - {"UNDEFINED"}
