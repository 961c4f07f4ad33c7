"""Tests that the documentation of the doctor contains each exit code, and only existing checks."""

import re
from pathlib import Path

from backend_plugin.doctor.registry import CHECKS
from backend_plugin.doctor.run_checks import EXIT_CODES

DOCS = Path(__file__).parents[3] / "docs"


def test_page_contains_each_exit_code() -> None:
    text = (DOCS / "reference" / "doctor.md").read_text()
    codes = {int(found) for found in re.findall(r"^\| (\d) \|", text, re.MULTILINE)}
    assert codes == {*EXIT_CODES.values(), 2}


def test_how_to_guide_names_only_existing_checks() -> None:
    page = (DOCS / "how-to" / "verify-and-troubleshoot.md").read_text()
    section = page.partition("## Replace manual checks")[2]
    named = set(re.findall(r"^\| .*\| `([a-z-]+)`", section, re.MULTILINE))
    assert named
    assert named <= {check.id for check in CHECKS}
