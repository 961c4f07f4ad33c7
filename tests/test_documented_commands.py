"""What the pages show of ``kfpytorch`` is what it prints.

A block with the name of a file behind its language is that file; a ``console`` block is a session in the
folder of them all: commands after ``$``, below each what it prints, where a line ``…`` stands for any number
of lines. ``UPDATE=1 pytest tests/test_documented_commands.py`` writes what is printed now, but for blocks
with ``…``.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<file>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SOME_LINES = "…\n"


def blocks(page: Path) -> list[re.Match[str]]:
    return list(BLOCK.finditer(page.read_text()))


PAGES = [
    page
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if any(block["language"] == "console" for block in blocks(page))
]


def commands(session: str) -> list[str]:
    """With the lines on which each goes on."""
    return re.findall(r"^\$ ((?:.*\\\n)*.*)$", session, re.MULTILINE)


def printed(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def played(session: str, folder: Path) -> str:
    return "".join(f"$ {command}\n{printed(command, folder)}" for command in commands(session))


def agrees(shown: str, real: str) -> bool:
    parts = [re.escape(part) for part in shown.split(SOME_LINES)]
    return re.fullmatch("(?:.*\n)*".join(parts), real) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_its_commands_print(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    for block in blocks(page):
        if block["file"]:
            (tmp_path / block["file"]).write_text(block["text"])
        if block["language"] != "console":
            continue
        real = played(block["text"], tmp_path)
        if os.environ.get("UPDATE") and SOME_LINES not in block["text"]:
            text = text.replace(block["text"], real)
            page.write_text(text)
        else:
            assert agrees(block["text"], real), real


def test_there_are_pages_to_play() -> None:
    assert {page.stem for page in PAGES} >= {"see-what-a-task-asks-for", "explain-a-job", "render", "explain"}
