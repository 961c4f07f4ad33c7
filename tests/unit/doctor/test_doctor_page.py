"""Tests that the documentation of the doctor contains every check and every option of the command."""

import os
import re
from pathlib import Path

from backend_plugin.cli.doctor import command
from backend_plugin.doctor.registry import CHECKS
from backend_plugin.doctor.run_checks import EXIT_CODES

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "reference" / "doctor.md"
HOW_TO = DOCS / "how-to" / "verify-and-troubleshoot.md"
HEAD = "| check | level | the check passes if |\n|---|---|---|\n"


def table() -> str:
    rows = (f"| `{check.id}` | {check.level.value} | {check.proves} |" for check in CHECKS)
    return HEAD + "\n".join(rows) + "\n"


def test_page_contains_each_check() -> None:
    text = PAGE.read_text()
    before, there, rest = text.partition(HEAD)
    assert there, "the page has no table"
    _, _, after = rest.partition("\n\n")
    written = f"{before}{table()}\n{after}"
    if os.environ.get("UPDATE"):
        PAGE.write_text(written)
    assert written == text


def test_page_contains_each_option_and_exit_code() -> None:
    text = PAGE.read_text()
    known = {option for param in command.params for option in param.opts if option.startswith("-")}
    section = text.partition("| option |")[2].partition("\n\n")[0]
    assert set(re.findall(r"(?<![\w-])--?[a-z]+(?:-[a-z]+)*", section)) - {"-"} == known
    codes = {int(found) for found in re.findall(r"^\| (\d) \|", text, re.MULTILINE)}
    assert codes == {*EXIT_CODES.values(), 2}


def test_how_to_guide_names_only_existing_checks() -> None:
    section = HOW_TO.read_text().partition("## Replace manual checks")[2]
    named = set(re.findall(r"^\| .*\| `([a-z-]+)`", section, re.MULTILINE))
    assert named
    assert named <= {check.id for check in CHECKS}
