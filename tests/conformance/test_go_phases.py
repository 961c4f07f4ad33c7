"""Phases of jobs in every state from Flyte's Go plugin and ours, which are equal or a listed difference."""

import re
from collections import Counter
from pathlib import Path

import pytest
from peers import ROOT, query_peer
from phases import DIFFERENCES, GoPhase, cases, differs, explanation

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(1800)]

PAGE = ROOT / "docs/reference/differences-from-the-go-plugin.md"
ENTRY = re.compile(r"^\| `([a-z-]+)` \| phase \| (\d+) \|$", re.MULTILINE)
SHOWN = 20


@pytest.fixture(scope="module")
def list_differences(go_plugin: Path) -> list[GoPhase]:
    judged = [case for case in cases() if case.get("job")]
    asked = [{"id": case["id"], "job": case["job"]} for case in judged]
    answers = query_peer([go_plugin, "--phase"], asked)
    return [each for case, answer in zip(judged, answers, strict=True) for each in differs(case, answer)]


def test_job_has_the_same_phase_except_listed_differences(list_differences: list[GoPhase]) -> None:
    assert [str(each) for each in list_differences if explanation(each) is None][:SHOWN] == []


def test_each_listed_difference_applies_as_often_as_the_page_states(list_differences: list[GoPhase]) -> None:
    counts = Counter(explanation(each) for each in list_differences)
    assert [name for name in DIFFERENCES if not counts[name]] == []
    written = {name: int(count) for name, count in ENTRY.findall(PAGE.read_text())}
    assert written == {name: counts[name] for name in DIFFERENCES}
