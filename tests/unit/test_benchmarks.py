"""The page of the benchmarks keeps its hand-written text."""

import re
from pathlib import Path

import pytest

import benchmarks.__main__ as program
from benchmarks import results_page
from benchmarks.comparison import Row

PART = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)


def test_run_of_all_figures_replaces_only_the_generated_parts_of_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = program.RESULTS.read_text()
    page = tmp_path / "RESULTS.md"
    page.write_text(before)
    # The real figures take an hour.
    figures = {
        name: lambda _, name=name: [Row.build_single(f"row of {name}", "1 s")] for name in program.FIGURES
    }
    monkeypatch.setattr(program, "FIGURES", figures)
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


@pytest.mark.parametrize(
    "page",
    ["", "<!-- generated: machine -->\n<!-- end -->", "<!-- generated: machine,a,b,a -->\n<!-- end -->"],
    ids=["none", "missing", "repeated"],
)
def test_page_without_a_part_for_each_figure_is_rejected(page: str) -> None:
    with pytest.raises(ValueError, match="machine, a, b once"):
        results_page.check_parts(page, ("a", "b"))
