"""Tests that the RBAC rules of the chart are those of the tables."""

import os

import chart_files
import chart_rules

RULES = chart_files.CHART / "files/rules.yaml"


def test_rules_file_is_generated_from_the_tables() -> None:
    expected = chart_rules.build_file()
    if os.environ.get("UPDATE"):
        RULES.write_text(expected)
    assert RULES.read_text() == expected
