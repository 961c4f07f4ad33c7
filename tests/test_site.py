"""The site contains every page, loads nothing from other hosts, and does not build with a broken link."""

import re
import shutil
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
# Pages that the menu does not contain.
OUTSIDE = re.compile(r"STYLE|docs/decisions/")
AT_ROOT = ("CHANGELOG", "CONTRIBUTING", "STYLE", "benchmarks/RESULTS")


def built(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build the site with the options of `make docs`."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-q",
            "-W",
            "-n",
            "--keep-going",
            "-c",
            source / "docs",
            source,
            target,
        ],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "NO_COLOR": "1"},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = built(ROOT, target)
    assert (done.returncode, done.stderr) == (0, "")
    return target


def test_each_page_is_in_the_site_and_its_navigation(site: Path) -> None:
    first = (site / "index.html").read_text()
    menu = set(re.findall(r'class="reference internal" href="([^"#]+)"', first.partition("<article")[0]))
    pages = {str(page.relative_to(ROOT).with_suffix(".html")) for page in PAGES} - {"README.html"}
    assert {page for page in pages if not (site / page).exists()} == set()
    assert {page for page in pages if page not in menu} == {page for page in pages if OUTSIDE.match(page)}


def test_index_links_to_the_pages_outside_the_menu(site: Path) -> None:
    index = (site / "docs/README.html").read_text()
    linked = set(re.findall(r'class="reference internal" href="([^"#]+)"', index))
    assert linked >= {"../STYLE.html", "../benchmarks/RESULTS.html", "decisions/README.html"}
    records = {page.with_suffix(".html").name for page in (ROOT / "docs/decisions").glob("0*.md")}
    listed = (site / "docs/decisions/README.html").read_text().partition("<article")[2]
    assert set(re.findall(r'href="(0[^"#]+)"', listed)) == records


def test_site_loads_nothing_from_other_hosts(site: Path) -> None:
    fetched = {url for page in site.rglob("*.html") for url in FETCHED.findall(page.read_text())}
    assert fetched == set()


def test_broken_link_or_unlisted_page_fails_the_build(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "docs/decisions").mkdir(parents=True)
    (source / "benchmarks").mkdir()
    shutil.copy(ROOT / "docs/conf.py", source / "docs")
    for name in (*AT_ROOT, "docs/decisions/0001-a", "docs/forgotten", "docs/page"):
        (source / f"{name}.md").write_text("# A page\n")
    (source / "README.md").write_text("# Home\n\n[one](docs/page.md#a-page) [two](docs/page.md#nowhere)\n")
    (source / "docs/decisions/README.md").write_text("# Decisions\n\n[three](0002-b.md)\n")
    links = "[page](page.md) [log](../CHANGELOG.md) [help](../CONTRIBUTING.md)"
    index = f"# Index\n\n- **Pages**\n  - {links}\n- **[Decisions](decisions/README.md)**\n"
    (source / "docs/README.md").write_text(index)
    done = built(source, tmp_path / "target")
    # Only the files are compared. Sphinx 8, the version for Python 3.10, does not name all kinds of warnings.
    pages = re.findall(r"source/(\S+?\.md)\S* WARNING: ", done.stderr)
    assert done.returncode != 0
    assert sorted(pages) == [
        "README.md",
        "docs/decisions/README.md",
        "docs/forgotten.md",
    ], done.stderr
