"""Generated parts of pages, between ``<!-- generated: NAME -->`` and ``<!-- end -->``.

``UPDATE=1 pytest tests/test_generated_pages.py`` rewrites them.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

PART = re.compile(r"<!-- generated: (?P<name>\S+) -->\n(?P<text>.*?)<!-- end -->", re.DOTALL)


def parts(page: Path) -> list[str]:
    """Return the names of the generated parts of a page."""
    return [found["name"] for found in PART.finditer(page.read_text())]


def read_part(page: Path, name: str) -> re.Match[str]:
    """Return the match of a part of a page."""
    return next(found for found in PART.finditer(page.read_text()) if found["name"] == name)


def agree(page: Path, name: str, expected: str) -> None:
    """Fail if the part differs from the expected text. With UPDATE set, write the part instead."""
    found = read_part(page, name)
    text = found.string
    if os.environ.get("UPDATE"):
        page.write_text(text[: found.start("text")] + expected + text[found.end("text") :])
    else:
        assert found["text"] == expected


def table(head: list[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table, with an empty line before and after it."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join(["", lines[0], "|---" * len(head) + "|", *lines[1:], "", ""])


def code(text: str) -> str:
    return f"`{text}`" if text else ""
