"""The site contains every page, and loads nothing from other hosts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
# Resources that a browser fetches automatically. Links are not included.
FETCHED = re.compile(
    r"<(?:script|img|iframe|link rel=\"stylesheet\")[^>]*(?:src|href)=\"((?:https?:)?//[^\"]+)"
)
OUTSIDE = re.compile(r"STYLE|docs/decisions/")  # Pages that the menu does not contain.


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
    fetched = {url for page in site.rglob("*.html") for url in FETCHED.findall(page.read_text())}
    assert fetched == set()
