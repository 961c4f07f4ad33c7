"""Parts of pages that the code writes: between ``<!-- generated: NAME -->`` and ``<!-- end -->``.

``UPDATE=1 pytest tests/test_generated_pages.py`` writes them anew.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PART = re.compile(r"<!-- generated: (?P<name>\S+) -->\n(?P<text>.*?)<!-- end -->", re.DOTALL)


def parts(page: Path) -> list[str]:
    """The names of the parts that a page has."""
    return [found["name"] for found in PART.finditer(page.read_text())]


def agree(page: Path, name: str, expected: str) -> None:
    """Fail unless the part is as expected; or write it."""
    text = page.read_text()
    found = next(found for found in PART.finditer(text) if found["name"] == name)
    if os.environ.get("UPDATE"):
        page.write_text(text[: found.start("text")] + expected + text[found.end("text") :])
    else:
        assert found["text"] == expected


def table(head: list[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown, with an empty line around it."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join(["", lines[0], "|---" * len(head) + "|", *lines[1:], "", ""])


def code(text: str) -> str:
    return f"`{text}`" if text else ""
