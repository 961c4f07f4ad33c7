"""Reports of failures: those on `docs/reference/failure-examples.md`, and one in a notebook.

``UPDATE=1 pytest tests/e2e/test_failures_doc.py`` writes the outputs of the programs into the page.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

MOST_IN_REPORT, MOST_IN_ALL = 25, 35
PAGE = Path(__file__).parents[2] / "docs/reference/failure-examples.md"
# `make soak` runs these programs, because each needs four seconds of CPU time. An update runs all.
LONG = (
    () if os.environ.get("UPDATE") else ("data_loader", "exit_code", "import_error", "other_shape", "sigsegv")
)
SECTION = re.compile(
    r"^```py\n(?P<program>.*?)^```\n\n```text\n\$ pyflyte run (?P<name>\w+)\.py train\n(?P<output>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)
SECTIONS = {section["name"]: section for section in SECTION.finditer(PAGE.read_text())}
LOGS = re.compile(r"\S+/[\d-]+-(\S+/rank\d+\.log)")
# Durations and process ids vary between runs.
PASSING = re.compile(r"after \d+(\.\d)? ?(s|ms|seconds)\b|process \d+")
# The other ranks are always the same, but the failures that they observe depend on timing.
OTHERS = re.compile(r"^  others +(.*)$", re.MULTILINE)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "programs"
    folder.mkdir()
    return folder


def run_program(pyflyte, folder, name, **env):
    (folder / f"{name}.py").write_text(SECTIONS[name]["program"])
    ran = pyflyte.run(folder / f"{name}.py", "train", **env)
    assert pyflyte.left() == ([], [])
    assert ran.code == 1
    return ran


def printed(ran):
    """Return the visible output, with the default log directory."""
    text = "".join(line + "\n" for line in (ran.out + ran.err).splitlines() if line.strip())
    return LOGS.sub(r"~/.local/state/kfpytorch/runs/…-\1", text)


def lasting(text):
    text = OTHERS.sub(lambda found: "others " + " ".join(sorted(re.findall(r"\b(?<!:)\d+", found[1]))), text)
    return PASSING.sub(lambda found: re.sub(r"\d+", "0", found[0]), text)


def test_each_program_of_the_page_has_an_output():
    assert PAGE.read_text().count("```py\n") == len(SECTIONS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak if name in LONG else ()) for name in SECTIONS]
)
def test_page_shows_the_real_output_of_each_program(pyflyte, folder, name):
    ran = run_program(pyflyte, folder, name)
    assert len(ran.report) <= MOST_IN_REPORT  # The report fits on one screen.
    assert len(ran.lines) < MOST_IN_ALL
    shown, real = SECTIONS[name]["output"], printed(ran)
    if os.environ.get("UPDATE"):
        PAGE.write_text(PAGE.read_text().replace(shown, real))
    else:
        assert lasting(real) == lasting(shown)


@pytest.mark.soak
def test_failure_report_is_equal_with_fresh_interpreters(pyflyte, folder):
    """As on macOS, where ranks are no forks."""
    ran = run_program(pyflyte, folder, "exception", FLYTE_KFPYTORCH_FORK="0")
    assert lasting(printed(ran)) == lasting(SECTIONS["exception"]["output"])


def test_notebook_report_contains_the_line_of_the_cell(tmp_path):
    shown = subprocess.run(
        [sys.executable, Path(__file__).parent / "scripts" / "cell.py"],
        env={**os.environ, "FLYTE_KFPYTORCH_LOG_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    ).stdout.splitlines()
    assert shown[0].endswith("(user-error): ValueError at /nowhere/cell-1.py:7 in train")
    assert shown[1:3] == ["  ValueError: no data", '    ❱ raise ValueError("no data")']
