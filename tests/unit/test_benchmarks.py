"""The page of the benchmarks keeps its hand-written text, and their API server has what a connector lists."""

import json
import re
import urllib.request

import pytest

import benchmarks.__main__ as program
from backend_plugin.core.dialects.table import DIALECTS
from benchmarks.comparison import Row
from benchmarks.scripts import empty_api_server

PART = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)


@pytest.mark.torch
def test_run_of_all_figures_replaces_only_the_generated_parts_of_the_page(monkeypatch, tmp_path, capsys):
    before = program.RESULTS.read_text()
    page = tmp_path / "RESULTS.md"
    page.write_text(before)
    # The real figures take an hour.
    rows = {name: [Row.build_single(f"row of {name}", "1 s")] for name in program.FIGURES}
    monkeypatch.setattr(program, "FIGURES", {name: lambda _, row=row: row for name, row in rows.items()})
    monkeypatch.setattr(program, "RESULTS", page)
    program.main(["--only", "core"])
    assert page.read_text() == before
    assert "| row of core | 1 s |" in capsys.readouterr().out
    program.main(["--repeat", "1"])
    after = page.read_text()
    assert PART.split(after) == PART.split(before)
    assert sorted(re.findall(r"row of (\w+)", after)) == sorted(program.FIGURES)
    assert all("`python -m benchmarks --repeat 1`, 20" in part for part in PART.findall(after)[1:])
    program.main(["--repeat", "1"])
    assert page.read_text() == after


def test_empty_api_server_has_the_kinds_of_all_dialects(tmp_path):
    kinds = [kind for each in DIALECTS.values() for kind in (each.resource, each.prerequisite) if kind]
    with empty_api_server.serve(tmp_path) as kubeconfig:
        address = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        for kind in kinds:
            with urllib.request.urlopen(f"{address}/apis/{kind.api_version}/{kind.plural}") as response:
                assert json.load(response)["items"] == []
    assert {kind.plural for kind in kinds} >= {"trainjobs", "trainingruntimes"}
