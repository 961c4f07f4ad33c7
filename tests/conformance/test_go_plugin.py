"""Jobs of generated tasks and phases from Flyte's Go plugin and ours: equal, or a listed difference."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import phases
import pytest
from comparing import compare
from differences import DIFFERENCES, explanation
from generated_tasks import cases

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
KFPYTORCH = "from backend_plugin.cli import main; main()"
ALL = 2000
# A lower number gives a faster run. The counts on the page apply to all cases.
CASES = int(os.environ.get("CONFORMANCE_CASES", ALL))
PAGE = ROOT / "docs/reference/differences-from-the-go-plugin.md"
ENTRY = re.compile(r"^\| `(?P<name>[a-z-]+)` \| `(?P<path>[^`]+)` \| (?P<count>\d+) \|$", re.MULTILINE)
PHASE_ENTRY = re.compile(r"^\| `([a-z-]+)` \| phase \| (\d+) \|$", re.MULTILINE)
HEADING = re.compile(r"^### (.*)$", re.MULTILINE)
SHOWN = 20


def query_peer(command, lines):
    """Run a command on JSON lines and return one result per line, in the same order."""
    asked = list(lines)
    text = "".join(json.dumps(line) + "\n" for line in asked)
    done = subprocess.run(
        [str(part) for part in command], input=text, capture_output=True, text=True, check=False, cwd=ROOT
    )
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if [answer.get("id") for answer in answers] != [line["id"] for line in asked]:
        raise RuntimeError(f"{command} did not answer line by line:\n{done.stderr[-4000:]}")
    return answers


def render(lines):
    return query_peer([sys.executable, "-c", KFPYTORCH, "render", "--batch"], lines)


@pytest.fixture(scope="module")
def tasks():
    return cases(CASES)


@pytest.fixture(scope="module")
def theirs(go_plugin, tasks):
    return {answer["id"]: answer for answer in query_peer([go_plugin], tasks)}


@pytest.fixture(scope="module")
def registered_differences(tasks, theirs):
    return list(differences_of(tasks, theirs))


def differences_of(tasks, theirs):
    for task, ours in zip(tasks, render(tasks), strict=True):
        yield from compare(task, theirs[task["id"]], ours)


def unexplained(found):
    return [str(each) for each in found if explanation(each) is None][:SHOWN]


def test_most_tasks_are_built_by_both_plugins(tasks, theirs, registered_differences):
    refused = {found.case["id"] for found in registered_differences if found.path.startswith("refused")}
    built = [task for task in tasks if "manifest" in theirs[task["id"]] and task["id"] not in refused]
    assert len(built) > 0.7 * len(tasks)


def test_registered_task_becomes_the_same_job(registered_differences):
    assert unexplained(registered_differences) == []


def test_task_sent_by_propeller_becomes_the_same_job(go_plugin, tasks, theirs):
    """Compare the tasks in the form in which FlytePropeller sends them; it never sends some of them."""
    sent = zip(tasks, query_peer([go_plugin, "--arrival"], tasks), strict=True)
    arrived = [{**task, "template": sending["template"]} for task, sending in sent if "template" in sending]
    assert unexplained([*differences_of(arrived, theirs)]) == []


def written():
    return {entry["name"]: (entry["path"], int(entry["count"])) for entry in ENTRY.finditer(PAGE.read_text())}


def test_each_listed_difference_is_on_the_page_with_its_section_and_path():
    sections = [name for line in HEADING.findall(PAGE.read_text()) for name in line.split(", ")]
    assert sorted(sections) == sorted([*DIFFERENCES, *phases.DIFFERENCES])
    paths = {name: entry.path for name, entry in DIFFERENCES.items()}
    assert {name: path for name, (path, _) in written().items()} == paths


@pytest.mark.skipif(CASES != ALL, reason="entries are counted over all tasks")
def test_each_listed_difference_applies_as_often_as_the_page_states(registered_differences):
    applied = {(explanation(found), found.case["id"]) for found in registered_differences}
    counts = Counter(name for name, _ in applied)
    assert [name for name in DIFFERENCES if not counts[name]] == []
    listed = {name: count for name, (_, count) in written().items()}
    assert listed == {name: counts[name] for name in DIFFERENCES}


@pytest.fixture(scope="module")
def phase_differences(go_plugin):
    judged = [case for case in phases.cases() if case.get("job")]
    asked = [{"id": case["id"], "job": case["job"]} for case in judged]
    pairs = zip(judged, query_peer([go_plugin, "--phase"], asked), strict=True)
    return [each for case, answer in pairs for each in phases.differs(case, answer)]


def test_job_has_the_same_phase_except_listed_differences(phase_differences):
    assert [str(each) for each in phase_differences if phases.explanation(each) is None][:SHOWN] == []


def test_each_listed_phase_applies_as_often_as_the_page_states(phase_differences):
    counts = Counter(phases.explanation(each) for each in phase_differences)
    assert [name for name in phases.DIFFERENCES if not counts[name]] == []
    listed = {name: int(count) for name, count in PHASE_ENTRY.findall(PAGE.read_text())}
    assert listed == {name: counts[name] for name in phases.DIFFERENCES}
