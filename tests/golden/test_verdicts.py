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

from backend_plugin.cli import explain, json_lines
from backend_plugin.core.judging import pending_reasons, terminations, verdict

HERE = Path(__file__).parent / "verdicts"
CASES = sorted(HERE.glob("*/*.yaml"))
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
    verdict = msgspec.json.decode(json_lines.encode_json(explain.judge_request(case["request"])))
    if os.environ.get("UPDATE"):
        path.write_text(yaml.safe_dump({**case, "verdict": verdict}, sort_keys=True, width=110))
    else:
        assert verdict == case["verdict"]


@pytest.mark.parametrize("table", TABLES)
def test_each_table_row_is_a_test_case(table):
    assert {path.stem for path in (HERE / table).iterdir()} >= {str(row) for row in TABLES[table]}


def test_each_phase_is_the_verdict_of_a_test_case():
    phases = {yaml.safe_load(path.read_text())["verdict"]["phase"] for path in CASES}
    assert phases == {phase.value for phase in verdict.Phase} - {"UNDEFINED"}
