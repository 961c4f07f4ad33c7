"""Serialization of the same configs by upstream's package and by ours, in two environments."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from upstream_cases import accepted, refused

pytestmark = [pytest.mark.conformance, pytest.mark.torch, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).with_name("upstream_templates.py")
ROOT = SCRIPT.parents[2]
CASES = 600


def answers(python: Path, package: Path, cases: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    folder.mkdir()
    (folder / "cases.json").write_text(json.dumps(cases))
    # The author's file has the same name in both environments, because the template contains the name.
    (folder / "author.py").write_bytes(SCRIPT.read_bytes())
    command = [python, "author.py", "cases.json", "answers.json"]
    subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(package)}, check=True)
    written = json.loads((folder / "answers.json").read_text())
    assert Path(written["written by"]).is_relative_to(package)
    return written["answers"]


@pytest.mark.parametrize("cases", [accepted(CASES), refused()], ids=["accepted", "refused"])
def test_task_is_serialized_identically_to_upstream(
    cases: list[dict[str, Any]], upstream: Path, tmp_path: Path
) -> None:
    (installed,) = upstream.glob("lib/python*/site-packages")
    theirs = answers(upstream / "bin" / "python", installed, cases, tmp_path / "upstream")
    ours = answers(Path(sys.executable), ROOT, cases, tmp_path / "ours")
    assert [found for found in zip(cases, theirs, ours, strict=True) if found[1] != found[2]] == []
    assert {answer == {"refused": True} for answer in theirs} == {cases == refused()}
