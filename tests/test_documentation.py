"""Code in README and docs runs, and the targets, links, files and modules that they name exist."""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
WORKFLOW = re.compile(r"^@workflow\ndef (\w+)", re.MULTILINE)
TRAINS = re.compile(r"import torch|@task\(task_config=Elastic")
TARGET = re.compile(r"^([a-z0-9]+):", re.MULTILINE)
MADE = re.compile(r"(?:`|^|&& )make ([a-z0-9]+)", re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
MODULE = re.compile(r"\b(?:flytekitplugins\.kfpytorch|kfpytorch_common)(?:\.\w+)+")
EXAMPLE = re.compile(r"\b(?:examples|benchmarks|docs|tests)/[\w/]+\.\w+")


class Block(NamedTuple):
    page: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def python_blocks() -> list["pytest.param"]:
    """Return every Python block. Blocks that need torch have its mark."""
    blocks = [
        Block(page, text.count("\n", 0, fence.start()) + 1, fence["text"])
        for page in PAGES
        for text in [page.read_text()]
        for fence in FENCE.finditer(text)
        if fence["language"] == "python"
    ]
    torch = pytest.mark.torch
    return [
        pytest.param(block, id=str(block), marks=[torch] if TRAINS.search(block.text) else [])
        for block in blocks
    ]


def mentions(pattern: re.Pattern[str]) -> list["pytest.param"]:
    """Return every distinct match of a pattern on a page, with the page."""
    return [
        pytest.param(page, name, id=f"{page.relative_to(ROOT)}-{name}")
        for page in PAGES
        for name in sorted(set(pattern.findall(page.read_text())))
    ]


def command(block: Block) -> list[str | Path]:
    """Return the command for a block. A block with a workflow runs with pyflyte."""
    if WORKFLOW.search(block.text):
        return [Path(sys.executable).with_name("pyflyte"), "run"]
    return [sys.executable, "-W", "error::DeprecationWarning:__main__"]


@pytest.mark.parametrize("block", python_blocks())
def test_documented_code_runs(block: Block, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    # Leading blank lines give a traceback the line numbers of the page.
    script.write_text("\n" * block.line + block.text)
    done = subprocess.run(
        [*command(block), script, *WORKFLOW.findall(block.text)[-1:]],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("page", "target"), mentions(MADE))
def test_each_documented_make_target_exists(page: Path, target: str) -> None:
    assert target in TARGET.findall((ROOT / "Makefile").read_text())


@pytest.mark.parametrize(("page", "link"), mentions(LINK))
def test_each_link_target_exists(page: Path, link: str) -> None:
    assert (page.parent / link).exists()


@pytest.mark.parametrize(("page", "path"), mentions(EXAMPLE))
def test_each_documented_file_exists(page: Path, path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("page", "name"), mentions(MODULE))
def test_each_documented_module_exists(page: Path, name: str) -> None:
    path = ROOT.joinpath(*name.split("."))
    if path.is_dir() or path.with_suffix(".py").exists():
        return
    parent, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(parent), attribute)
