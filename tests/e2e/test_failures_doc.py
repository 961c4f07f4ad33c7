"""`docs/reference/failure-examples.md` shows the source and the real output of each failing program.

``UPDATE=1 pytest tests/e2e/test_failures_doc.py`` writes programs and outputs into the page.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from e2e.conftest import FAILURES, Pyflyte, Ran

pytestmark = pytest.mark.torch

MOST_IN_REPORT, MOST_IN_ALL = 25, 35
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/failure-examples.md"
PROGRAMS = sorted(FAILURES.glob("*.py"))
# `make soak` runs these programs, because each needs four seconds of CPU time. An update runs all.
LONG = (
    () if os.environ.get("UPDATE") else ("data_loader", "exit_code", "import_error", "other_shape", "sigsegv")
)
SECTION = re.compile(
    r"^```py\n(?P<program>.*?)^```\n\n```text\n\$ pyflyte run (?P<name>\w+)\.py train\n(?P<output>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)
LOGS = re.compile(r"\S+/[\d-]+-(\S+/rank\d+\.log)")
# Durations and process ids vary between runs.
PASSING = re.compile(r"after \d+(\.\d)? ?(s|ms|seconds)\b|process \d+")
# The other ranks are always the same, but the failures that they observe depend on timing.
OTHERS = re.compile(r"^  others +(.*)$", re.MULTILINE)


class ShownFailure(NamedTuple):
    """A section of the page."""

    program: str
    output: str


def sections() -> Iterator[tuple[str, ShownFailure]]:
    for found in SECTION.finditer(PAGE.read_text()):
        yield found["name"], ShownFailure(found["program"], found["output"])


def printed(ran: Ran) -> str:
    """Return the visible output, with the default log directory."""
    text = "".join(line + "\n" for line in (ran.out + ran.err).splitlines() if line.strip())
    return LOGS.sub(r"~/.local/state/kfpytorch/runs/…-\1", text)


def lasting(text: str) -> str:
    text = OTHERS.sub(lambda found: "others " + " ".join(sorted(re.findall(r"\b(?<!:)\d+", found[1]))), text)
    return PASSING.sub(lambda found: re.sub(r"\d+", "0", found[0]), text)


def test_each_failing_program_is_on_the_page() -> None:
    assert sorted(name for name, _ in sections()) == [path.stem for path in PROGRAMS]


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.soak if path.stem in LONG else ()) for path in PROGRAMS],
    ids=lambda path: path.stem,
)
def test_page_shows_the_source_and_real_output(pyflyte: Pyflyte, path: Path) -> None:
    ran = pyflyte.run(path, "train")
    assert pyflyte.left() == ([], [])
    actual = ShownFailure(path.read_text(), printed(ran))
    if os.environ.get("UPDATE"):
        update(path.stem, actual)
    assert ran.code == 1
    # The report fits on one screen.
    assert len(ran.report) <= MOST_IN_REPORT
    assert len(ran.lines) < MOST_IN_ALL
    shown = dict(sections())[path.stem]
    assert (shown.program, lasting(shown.output)) == (actual.program, lasting(actual.output))


def update(name: str, actual: ShownFailure) -> None:
    def written(found: re.Match[str]) -> str:
        if found["name"] != name:
            return found[0]
        return f"```py\n{actual.program}```\n\n```text\n$ pyflyte run {name}.py train\n{actual.output}```\n"

    PAGE.write_text(SECTION.sub(written, PAGE.read_text()))
