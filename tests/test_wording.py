"""Docstrings, comments, messages, pages and charts use the terms of STYLE.md."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("backend_plugin", "flytekitplugins", "kfpytorch_common")
# Words that describe software as a person, and words that technical prose does not use.
WORDS = Path(__file__).with_name("retired_words.txt").read_text().splitlines()
RETIRED = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
# Names of the code are not prose: `said`, [text](page.md#configure-flytepropeller).
CODE = re.compile(r"```.*?```|``[^`]*``|`[^`]*`|\]\([^)\s]*\)|<[^>]*>", re.DOTALL)
MESSAGE_WORDS = 4
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
# STYLE.md lists the words that it replaces. The comparison quotes the messages of a recorded run.
QUOTING = {"STYLE.md", "comparison-with-the-go-plugin.md"}
FILES = {
    **{folder: [*(ROOT / folder).rglob("*.py")] for folder in PRODUCT},
    "pages": [path for path in PAGES if path.name not in QUOTING],
    "charts": [path for path in (ROOT / "charts").rglob("*") if path.suffix in {".yaml", ".tpl", ".txt"}],
}


def read_python(source):
    """Yield line and text of the docstrings, comments and messages of a module."""
    tree = ast.parse(source)
    expressions = [node for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    docstrings = {node.value: node.lineno for node in expressions if isinstance(node.value, ast.Constant)}
    for node, line in docstrings.items():
        # The parameter names of a Google style docstring are code.
        yield line, re.sub(r"(?m)^\s+\w+: ", "", str(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node not in docstrings and is_message(node.value):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def is_message(value):
    """True for a text of some words that is no regular expression."""
    return (
        isinstance(value, str)
        and len(re.findall(r"[A-Za-z]{2,}", value)) >= MESSAGE_WORDS
        and "(?" not in value
    )


def read_lines(text):
    for match in re.finditer(r"[^\n]+", CODE.sub(lambda code: "\n" * code.group().count("\n"), text)):
        yield text.count("\n", 0, match.start()) + 1, match.group()


def read_texts(path):
    text = path.read_text()
    if path.suffix == ".py":
        yield from read_python(text)
    elif path.suffix in {".md", ".txt"}:
        yield from read_lines(text)
    elif path.suffix == ".tpl":  # Literal texts and comments of a Helm template.
        yield from find_texts(r'("[^"]+"|/\*.*?\*/)', text)
    else:
        yield from find_texts(r"(?:^|\s)#\s?(.*)$", text)


def find_texts(pattern, text):
    for number, line in enumerate(text.splitlines(), 1):
        for match in re.finditer(pattern, line):
            yield number, match[1]


def find_retired(path):
    return [
        f"{path.relative_to(ROOT)}:{line}: {word.group()!r} in {text.strip()[:80]!r}"
        for line, text in read_texts(path)
        for word in RETIRED.finditer(CODE.sub("", text))
    ]


@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
def test_docstrings_comments_messages_and_pages_use_standard_terms(files):
    assert [each for path in sorted(files) for each in find_retired(path)] == []
