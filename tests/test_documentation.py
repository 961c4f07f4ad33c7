"""Code in README and docs is valid and runs, what the pages name exists, and the site contains every page.

`test_documented_commands` runs console blocks, and e2e tests run the programs of
docs/reference/failure-examples.md.
"""

import ast
import importlib
import json
import re
import subprocess
import sys
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml

from backend_plugin.cli.commands import COMMANDS, kfpytorch

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(r"^(?:\$ )?(?:\w+=\S+ )*(?:\.venv/bin/)?((?:kfpytorch|pyflyte) (?! )[^\n]*)")
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
# Separators between shell commands.
APART = re.compile(r" \| | && |; | > | < |  # ")
WORD = re.compile(r"[a-z]+")
WORKFLOW = re.compile(r"^@workflow\ndef (\w+)", re.MULTILINE)
TRAINS = re.compile(r"import torch|@task\(task_config=Elastic")
TARGET = re.compile(r"^([a-z0-9]+):", re.MULTILINE)
MADE = re.compile(r"(?:`|^|&& )make ([a-z0-9]+)", re.MULTILINE)
MODULE = re.compile(r"\b(?:flytekitplugins\.kfpytorch|kfpytorch_common)(?:\.\w+)+")
EXAMPLE = re.compile(r"\b(?:examples|benchmarks|docs|tests)/[\w/]+\.\w+")
# Resources that a browser fetches automatically. Links are not included.
FETCHED = re.compile(
    r"<(?:script|img|iframe|link rel=\"stylesheet\")[^>]*(?:src|href)=\"((?:https?:)?//[^\"]+)"
)
OUTSIDE = re.compile(r"STYLE|docs/decisions/")  # Pages that the menu does not contain.


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


BLOCKS = [
    Block(page, text.count("\n", 0, fence.start()) + 1, fence["language"], fence["text"])
    for page in PAGES
    for text in [page.read_text()]
    for fence in FENCE.finditer(text)
]


def parsed(block):
    match block.language:
        case "yaml":
            return list(yaml.safe_load_all(block.text))
        case "json":
            return json.loads(block.text)
        case "proto" | "text" | "sh" | "console" | "svg":
            return block.text
        case "py" | "python":
            return ast.parse(block.text)
    raise AssertionError(f"{block} is of a language that is not checked: {block.language!r}")


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_each_code_block_is_parsed_in_its_language(block):
    assert parsed(block)


def written(page):
    """Yield each shell line and each inline code text, which may contain a command."""
    text = page.read_text()
    for block in FENCE.finditer(text):
        if block["language"] in ("sh", "text", "console"):
            yield from block["text"].replace("\\\n", "").splitlines()
    yield from INLINE.findall(FENCE.sub("", text))


def commands(page):
    parts = (part.strip() for line in written(page) for part in APART.split(line))
    return [found[1] for part in parts if (found := COMMAND.match(part))]


def shown_on_pages(find):
    """Return every distinct text that a function finds on a page, with the page."""
    return [
        pytest.param(page, text, id=f"{page.relative_to(ROOT)}-{text}")
        for page in PAGES
        for text in sorted(set(find(page)))
    ]


@pytest.mark.parametrize(("page", "shown"), shown_on_pages(commands))
def test_each_documented_command_exists_with_its_options(page, shown):
    words = shown.split()
    if words[0] == "pyflyte":
        # Arguments after a Python file are inputs of its task.
        words = list(takewhile(lambda word: not word.endswith(".py"), words))
    known = options_of(tuple(filter(WORD.fullmatch, words[:3])))
    assert set(OPTION.findall(" ".join(words))) - known == set()


@cache
def options_of(words):
    """Return the options of a command and of its parent commands."""
    if words[0] == "pyflyte":
        return set().union(*(flytekits()[" ".join(words[:count])] for count in range(1, len(words) + 1)))
    assert words[1:2] == () or words[1] in COMMANDS, f"there is no kfpytorch {words[1]}"
    context = click.Context(kfpytorch)
    command = kfpytorch.get_command(context, words[1]) if words[1:] else None
    parts = [kfpytorch, command] if command else [kfpytorch]
    options = [option for part in parts for option in part.get_params(context)]
    return {name for option in options for name in (*option.opts, *option.secondary_opts)}


# Loading flytekit's commands takes seconds and emits warnings, so it runs once in a separate process.
FLYTEKITS = """
import click, json
from flytekit.clis.sdk_in_container.pyflyte import main
def tell(path, command):
    context = click.Context(command)
    print(json.dumps([path, [name for option in command.get_params(context) for name in option.opts]]))
    if path.count(" ") < 2 and path != "pyflyte run" and isinstance(command, click.Group):
        for name in command.list_commands(context):
            tell(f"{path} {name}", command.get_command(context, name))
tell("pyflyte", main)
"""


@cache
def flytekits():
    done = subprocess.run([sys.executable, "-c", FLYTEKITS], check=True, stdout=subprocess.PIPE, text=True)
    return dict(map(json.loads, done.stdout.splitlines()))


def test_pages_contain_each_command():
    shown = [command.split() for page in PAGES for command in commands(page)]
    assert {words[1] for words in shown if words[0] == "kfpytorch"} >= set(COMMANDS)
    assert {words[1] for words in shown if words[0] == "pyflyte"} >= {"run", "serve"}


def python_blocks():
    """Return every Python block. Blocks that need torch have its mark."""
    return [
        pytest.param(block, id=str(block), marks=[pytest.mark.torch] if TRAINS.search(block.text) else [])
        for block in BLOCKS
        if block.language == "python"
    ]


def mentions(pattern):
    return shown_on_pages(lambda page: pattern.findall(page.read_text()))


def build_command(block):
    """Return the command for a block. A block with a workflow runs with pyflyte."""
    if WORKFLOW.search(block.text):
        return [Path(sys.executable).with_name("pyflyte"), "run"]
    return [sys.executable, "-W", "error::DeprecationWarning:__main__"]


@pytest.mark.parametrize("block", python_blocks())
def test_documented_code_runs(block, tmp_path):
    script = tmp_path / "block.py"
    # Leading blank lines give a traceback the line numbers of the page.
    script.write_text("\n" * block.line + block.text)
    command = [*build_command(block), script, *WORKFLOW.findall(block.text)[-1:]]
    streams = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run(command, check=False, cwd=tmp_path, **streams)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("page", "target"), mentions(MADE))
def test_each_documented_make_target_exists(page, target):
    assert target in TARGET.findall((ROOT / "Makefile").read_text())


@pytest.mark.parametrize(("page", "path"), mentions(EXAMPLE))
def test_each_documented_file_exists(page, path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("page", "name"), mentions(MODULE))
def test_each_documented_module_exists(page, name):
    path = ROOT.joinpath(*name.split("."))
    if path.is_dir() or path.with_suffix(".py").exists():
        return
    parent, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(parent), attribute)


# ---- the site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site with the options of `make docs`."""
    target = tmp_path_factory.mktemp("site")
    options = ["-q", "-W", "-n", "--keep-going", "-c", ROOT / "docs"]
    command = [sys.executable, "-m", "sphinx", *options, ROOT, target]
    environment = {"PATH": "/usr/bin:/bin", "NO_COLOR": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return target


def test_each_page_is_in_the_site_and_its_navigation(site):
    first = (site / "index.html").read_text()
    menu = set(re.findall(r'class="reference internal" href="([^"#]+)"', first.partition("<article")[0]))
    pages = {str(page.relative_to(ROOT).with_suffix(".html")) for page in PAGES} - {"README.html"}
    assert {page for page in pages if not (site / page).exists()} == set()
    assert {page for page in pages if page not in menu} == {page for page in pages if OUTSIDE.match(page)}


def test_index_links_to_the_pages_outside_the_menu(site):
    index = (site / "docs/README.html").read_text()
    linked = set(re.findall(r'class="reference internal" href="([^"#]+)"', index))
    assert linked >= {"../STYLE.html", "../benchmarks/RESULTS.html", "decisions/README.html"}
    records = {page.with_suffix(".html").name for page in (ROOT / "docs/decisions").glob("0*.md")}
    listed = (site / "docs/decisions/README.html").read_text().partition("<article")[2]
    assert set(re.findall(r'href="(0[^"#]+)"', listed)) == records


def test_site_loads_nothing_from_other_hosts(site):
    assert {url for page in site.rglob("*.html") for url in FETCHED.findall(page.read_text())} == set()
