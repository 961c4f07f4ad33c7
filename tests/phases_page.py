"""Tables of docs/reference/phases.md from tests/golden/verdicts: observed states and their verdicts.

The page contains the description of each state, and in a comment before it the name of its test case.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from generated import code, read_part, table

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/reference/phases.md"
TABLES = ("before", "running", "given-up", "ends", "train-jobs")
STATE = re.compile(r"^\| (<!-- (\S+) --> .*?) \| `", re.MULTILINE)


def read_verdict(case: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load((ROOT / f"tests/golden/verdicts/{case}.yaml").read_text())
    return found["verdict"]


def read_states(name: str) -> list[tuple[str, str]]:
    """Return the states of a table, each with the name of its case."""
    return STATE.findall(read_part(PAGE, name)["text"])


def build_phase_table(name: str) -> str:
    """Return a table with one row per state of the page, with the first line of each message."""
    rows = [build_row(state, read_verdict(case)) for state, case in read_states(name)]
    return table(["state", "phase", "reason", "cause", "message begins"], rows)


def build_row(state: str, verdict: Mapping[str, Any]) -> list[str]:
    first = verdict["message"].splitlines()[0].replace("|", r"\|").replace("<", "&lt;")
    cells = [code(verdict[name] or "") for name in ("phase", "reason", "cause")]
    return [state, *cells, first]
