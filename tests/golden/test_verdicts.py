"""Golden tests: the verdict of a job, once for each row of the tables that judge() uses.

A file ``verdicts/<table>/<row>.yaml`` has a line for ``kfpytorch explain --batch`` under ``request`` and the
result under ``verdict``. ``UPDATE=1 pytest tests/golden`` rewrites the results; review the diff before you
commit it.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
import yaml

from backend_plugin.cli import explain, lines
from backend_plugin.core import deaths, task_phase, waiting

HERE = Path(__file__).parent / "verdicts"
CASES = sorted(HERE.glob("*/*.yaml"))
# The folder of each table, and the names of its rows.
TABLES: dict[str, Iterable[object]] = {
    "container_reasons": deaths.CONTAINER_REASONS,
    "container_waits": waiting.CONTAINER_CAUSES,
    "disruptions": deaths.DISRUPTIONS,
    "exit_codes": deaths.EXIT_CODES,
    "pod_reasons": deaths.POD_REASONS,
    "refusals": [part.replace(" ", "_") for part, _ in waiting.REFUSALS],
}


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_job_is_told_of_as_before(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    verdict = msgspec.json.decode(lines.as_json(explain.answer(case["request"])))
    if os.environ.get("UPDATE"):
        path.write_text(yaml.safe_dump({**case, "verdict": verdict}, sort_keys=True, width=110))
    else:
        assert verdict == case["verdict"]


@pytest.mark.parametrize("table", TABLES)
def test_every_row_of_a_table_is_a_case(table: str) -> None:
    assert {path.stem for path in (HERE / table).iterdir()} >= {str(row) for row in TABLES[table]}


def test_every_phase_is_the_verdict_of_a_case() -> None:
    told = {yaml.safe_load(path.read_text())["verdict"]["phase"] for path in CASES}
    assert told == {phase.value for phase in task_phase.Phase} - {"UNDEFINED"}
