"""Installation of the distribution on a user's machine, as a wheel and as an editable install."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("backend_plugin", "flytekitplugins", "kfpytorch_common", "kfpytorch_idl")
WIRE = ("envelope", "job_ref", "people", "pods", "task")
DATA = {"py.typed", *(f"{name}_pb2.pyi" for name in WIRE), *(f"{name}.proto" for name in WIRE)}
UV = Path(sysconfig.get_path("scripts")) / "uv"

# A second plugin in the same namespace, installed like flytekit's own plugins: a .pth file creates the
# namespace at start, before any editable install is on the path.
OTHER_PLUGIN = "import importlib.machinery as m, importlib.util as u, sys; \
s = m.PathFinder.find_spec('flytekitplugins', [{site!r}]); \
sys.modules.setdefault('flytekitplugins', u.module_from_spec(s))"

USE = """
from importlib.metadata import distribution
import flytekitplugins.other
from flytekitplugins.kfpytorch import Elastic
import flytekitplugins.kfpytorch, kfpytorch_common, backend_plugin, kfpytorch_idl.v1.task_pb2
points = distribution("flytekitplugins-kfpytorch").entry_points
assert all(callable(point.load()) for point in points) and len(points) == 2
for package in flytekitplugins.kfpytorch, kfpytorch_common, backend_plugin, kfpytorch_idl:
    print(package.__file__)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of the sources, because a build writes next to them."""
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Return an environment with our dependencies, but without our own editable install."""
    home = tmp_path / "environment"
    uv("venv", "--quiet", "--python", sys.executable, home)
    site = next((home / "lib").glob("python*/site-packages"))
    (site / "flytekitplugins" / "other").mkdir(parents=True)
    (site / "flytekitplugins" / "other" / "__init__.py").touch()
    (site / "aaa-other-nspkg.pth").write_text(OTHER_PLUGIN.format(site=str(site)))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return home


def uv(*arguments: str | Path) -> None:
    subprocess.run([UV, *arguments], check=True, env={**os.environ, "UV_OFFLINE": "1"})


def install(environment: Path, *what: str | Path) -> None:
    uv("pip", "install", "--quiet", "--python", environment, "--no-deps", "--no-build-isolation", *what)


def origins(environment: Path) -> list[Path]:
    """Return the locations of the packages, imported in a directory that contains none of them."""
    done = subprocess.run(
        [environment / "bin" / "python", "-c", USE],
        check=True,
        cwd=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    return [Path(line) for line in done.stdout.split()]


@pytest.fixture
def wheel(checkout: Path, tmp_path: Path) -> Path:
    uv(
        "build",
        "--quiet",
        "--wheel",
        "--no-build-isolation",
        "--python",
        sys.executable,
        "--out-dir",
        tmp_path,
        checkout,
    )
    return next(tmp_path.glob("flytekitplugins_kfpytorch-2*.whl"))


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    content = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = (path for name in PACKAGES for path in (ROOT / name).rglob("*"))
    assert content == {
        str(path.relative_to(ROOT)) for path in sources if path.suffix == ".py" or path.name in DATA
    }


def test_the_wheel_works_beside_another_plugin(environment: Path, wheel: Path) -> None:
    install(environment, wheel)
    assert all(path.is_relative_to(environment) for path in origins(environment))


def test_the_command_is_there_and_tells_its_version(environment: Path, wheel: Path) -> None:
    install(environment, wheel)
    done = subprocess.run(
        [environment / "bin" / "kfpytorch", "--version"], check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout == f"kfpytorch, version {wheel.name.split('-')[1]}\n"


BURN_IN = ROOT / "backend_plugin" / "doctor" / "burn_in" / "program.py"
"""The burn-in program is read as text and runs in pods, which have torch."""


def test_an_extra_brings_what_the_backend_imports() -> None:
    """Check that the extra `backend` and flytekit's packages cover every import, without torch."""
    nodes = [
        node
        for path in (ROOT / "backend_plugin").rglob("*.py")
        if path != BURN_IN
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    foreign = {name.partition(".")[0] for name in names} - sys.stdlib_module_names - set(PACKAGES)
    traced = {"opentelemetry"}  # An optional feature; the extra `otel` contains this package.
    brought = {MODULES[name] for name in extra("backend")}
    assert foreign - traced == {"flyteidl", "flytekit", "google", *brought}


MODULES = {
    "aiohttp": "aiohttp",
    "async-timeout": "async_timeout",
    "fsspec": "fsspec",
    "grpcio": "grpc",
    "grpcio-health-checking": "grpc_health",
    "grpcio-reflection": "grpc_reflection",
    "kubernetes": "kubernetes",
    "msgspec": "msgspec",
    "prometheus-client": "prometheus_client",
    "psutil": "psutil",
    "python-json-logger": "pythonjsonlogger",
    "pyyaml": "yaml",
    "rich-click": "rich_click",
    "typing-extensions": "typing_extensions",
    "yarl": "yarl",
}


def extra(name: str) -> list[str]:
    wanted = distribution("flytekitplugins-kfpytorch").requires or []
    return [re.split(r"[<>=]", each)[0] for each in wanted if re.search(f"extra == .{name}.", each)]


def test_an_editable_install_works_beside_another_plugin(environment: Path, checkout: Path) -> None:
    install(environment, "--editable", checkout)
    assert all(path.is_relative_to(checkout) for path in origins(environment))


def test_an_editable_install_is_a_path_and_no_import_hook(environment: Path, checkout: Path) -> None:
    install(environment, "--editable", checkout)
    (link,) = environment.glob("lib/python*/site-packages/__editable__*")
    assert link.read_text().strip() == str(checkout)
