"""The ``kfpytorch`` output on the pages is equal to the real output.

A block with a file name after its language is that file. A ``console`` block is a session in the folder of
all these files: commands after ``$``, and their output below. A line ``…`` matches any number of lines, and
``…`` in a line matches any text. ``UPDATE=1 pytest tests/test_documented_commands.py`` writes the current
output, except in blocks with ``…``.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<file>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SOME_TEXT = "…"
SOME_LINES = re.compile(r"^…\n", re.MULTILINE)
# The output must not depend on the terminal or on a GPU.
ELSEWHERE = {"COLUMNS": "100", "CUDA_VISIBLE_DEVICES": ""}
TRAINS = re.compile(r"^\$ (pyflyte run|kfpytorch demo) ", re.MULTILINE)


def blocks(page):
    return list(BLOCK.finditer(page.read_text()))


PAGES = [
    page
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if any(block["language"] == "console" for block in blocks(page))
]


def marks(page):
    """Return the marks of a page. A page that trains needs torch and a longer timeout."""
    trains = any(TRAINS.search(block["text"]) for block in blocks(page))
    return [pytest.mark.torch, pytest.mark.timeout(300)] if trains else []


@pytest.fixture
def folder():
    """Yield a folder with a short name, because line breaks in the output depend on its length."""
    with tempfile.TemporaryDirectory(prefix="page-") as name:
        yield Path(name)


def commands(session):
    """Return the commands of a session, with continuation lines."""
    return re.findall(r"^\$ ((?:.*\\\n)*.*)$", session, re.MULTILINE)


def printed(command, folder):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    folders = {"PATH": path, "FLYTE_KFPYTORCH_LOG_DIR": str(folder / "runs")}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    environment = {**os.environ, **ELSEWHERE, **folders}
    command_line = ["bash", "-c", command]
    return subprocess.run(command_line, check=False, cwd=folder, env=environment, text=True, **streams).stdout


def played(session, folder):
    return "".join(f"$ {command}\n{printed(command, folder)}" for command in commands(session))


@pytest.mark.parametrize("page", [pytest.param(page, id=page.stem, marks=marks(page)) for page in PAGES])
def test_page_shows_the_real_output_of_its_commands(page, folder):
    text = page.read_text()
    for block in blocks(page):
        if block["file"]:
            (folder / block["file"]).write_text(block["text"])
        if block["language"] != "console":
            continue
        real = played(block["text"], folder)
        if os.environ.get("UPDATE") and SOME_TEXT not in block["text"]:
            text = text.replace(block["text"], real)
            page.write_text(text)
        else:
            parts = [re.escape(part).replace(SOME_TEXT, ".*") for part in SOME_LINES.split(block["text"])]
            assert re.fullmatch("(?:.*\n)*".join(parts), real), real
