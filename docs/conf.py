"""How the pages become a site: ``make docs``, offline, with every warning an error.

The sources are the repository's own pages, so that a link between any two of them holds in the site, too. The
index, docs/README.md, is the navigation: a page that it does not name is a warning.
"""

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parent.parent
CAPTION = re.compile(r"^- \*\*\[?([^]*]+)")
PAGE = re.compile(r"\]\(([\w/.-]+)\.md\)")

project = "flytekitplugins-kfpytorch"
html_title = "kfpytorch"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/**/*.md", "benchmarks/RESULTS.md"]
# What is no page need not be walked through either.
exclude_patterns = [".*", "build", "dist", "tests", "kfpytorch_idl"]
# Sections are linked to by what a forge calls them.
myst_heading_anchors = 6
nitpicky = True
html_theme = "furo"
# Nobody reads the sources beside the pages that they are.
html_copy_source = False
html_show_copyright = False
# There are no names to list: nothing is generated out of modules.
html_use_index = False


def toctree(caption: str, pages: list[str]) -> str:
    """A part of the navigation, as MyST writes it."""
    options = [":hidden:", ":glob:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, "", *pages, "```", ""])


def navigation(index: str) -> str:
    """The parts of the index, each with its pages in its order."""
    parts: dict[str, list[str]] = {}
    caption = ""
    for line in index.splitlines():
        if found := CAPTION.match(line):
            caption = found[1]
        parts.setdefault(caption, []).extend(f"docs/{page}" for page in PAGE.findall(line))
    return "".join(toctree(name, pages) for name, pages in parts.items() if pages)


def add_navigation(_app: Sphinx, name: str, source: list[str]) -> None:
    """The navigation stands at the end of the pages from which it begins, in the site only."""
    if name == root_doc:
        source[0] += toctree("", ["docs/README"]) + navigation((ROOT / "docs/README.md").read_text())
        source[0] += toctree("The repository", ["CHANGELOG", "CONTRIBUTING", "STYLE", "benchmarks/RESULTS"])
    elif name == "docs/decisions/README":
        source[0] += toctree("", ["0*"])


def add_index(app: Sphinx, failure: Exception | None) -> None:
    """Servers and file managers open the first page by this name."""
    if failure is None and app.builder.name == "html":
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_index)
