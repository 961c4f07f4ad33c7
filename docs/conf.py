"""Configuration of Sphinx for ``make docs``.

The sources are the pages of the repository, so links between them work in the repository and in the site. The
index, docs/README.md, defines the navigation. A page that it does not list is a warning, and so an error.
"""

import importlib.metadata
import os
import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parent.parent
CAPTION = re.compile(r"^- \*\*\[?([^]*]+)")
PAGE = re.compile(r"\]\(([\w/.-]+)\.md\)")

# Pages that the menu does not contain. The index links to them.
NOT_IN_MENU = re.compile(r"STYLE|benchmarks/RESULTS|docs/decisions/.*")

project = "flytekitplugins-kfpytorch"
release = importlib.metadata.version("flytekitplugins-kfpytorch")
html_title = f"kfpytorch {release}"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/**/*.md", "benchmarks/RESULTS.md"]
# Sphinx does not search directories without pages.
exclude_patterns = [".*", "build", "dist", "tests", "kfpytorch_idl"]
# Headings have the anchors that code hosting sites give them.
myst_heading_anchors = 6
nitpicky = True
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
# Readers of the site do not need the sources.
html_copy_source = False
html_show_copyright = False
# No page is generated from modules, so there is no index of names.
html_use_index = False


def toctree(caption: str, pages: list[str]) -> str:
    """Return one part of the navigation in MyST syntax."""
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, "", *pages, "```", ""])


def navigation(index: str) -> str:
    """Return the navigation with the parts and the order of the index."""
    parts: dict[str, list[str]] = {}
    caption = ""
    for line in index.splitlines():
        if found := CAPTION.match(line):
            caption = found[1]
        if line.lstrip().startswith("- "):
            pages = (os.path.normpath(f"docs/{page}") for page in PAGE.findall(line))
            parts.setdefault(caption, []).extend(page for page in pages if not NOT_IN_MENU.fullmatch(page))
    return "".join(toctree(name, pages) for name, pages in parts.items() if pages)


def add_navigation(_app: Sphinx, name: str, source: list[str]) -> None:
    """Append the navigation to the first page, and mark the pages outside of it, in the site only."""
    if name == root_doc:
        source[0] += toctree("", ["docs/README"]) + navigation((ROOT / "docs/README.md").read_text())
    elif NOT_IN_MENU.fullmatch(name):
        # Without this mark, Sphinx warns about a page outside of the menu.
        source[0] = f"---\norphan: true\n---\n{source[0]}"


def add_index(app: Sphinx, failure: Exception | None) -> None:
    """Copy the first page to index.html, the name that servers and file managers open."""
    if failure is None and app.builder.name == "html":
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> None:
    """Register the callbacks with Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_index)
