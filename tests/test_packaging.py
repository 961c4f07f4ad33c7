"""Installation of the distribution as a wheel and as an editable install, and its generated protobuf code."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import HeaderParser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sources import list_imports

ROOT = Path(__file__).parent.parent
PACKAGES = ("backend_plugin", "flytekitplugins", "kfpytorch_common", "kfpytorch_idl")
WIRE = ("envelope", "job_ref", "job_service", "pods", "task")
DATA = {"py.typed", *(f"{name}_pb2.pyi" for name in WIRE), *(f"{name}.proto" for name in WIRE)}
SCRIPTS = Path(sysconfig.get_path("scripts"))
PROTOS = ROOT / "protos"

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
BURN_IN = ROOT / "backend_plugin" / "doctor" / "burn_in" / "program.py"
"""The burn-in program is read as text and runs in pods, which have torch."""


@pytest.fixture
def checkout(tmp_path):
    """Return a copy of the sources, because a build writes next to them."""
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def environment(tmp_path):
    """Return an environment with our dependencies, but without our own editable install."""
    home = tmp_path / "environment"
    uv("venv", "--quiet", "--python", sys.executable, home)
    site = next((home / "lib").glob("python*/site-packages"))
    (site / "flytekitplugins" / "other").mkdir(parents=True)
    (site / "flytekitplugins" / "other" / "__init__.py").touch()
    (site / "aaa-other-nspkg.pth").write_text(OTHER_PLUGIN.format(site=str(site)))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return home


def uv(*arguments):
    subprocess.run([SCRIPTS / "uv", *arguments], check=True, env={**os.environ, "UV_OFFLINE": "1"})


def install(environment, *what):
    uv("pip", "install", "--quiet", "--python", environment, "--no-deps", "--no-build-isolation", *what)


def origins(environment):
    """Return the locations of the packages, imported in a directory that contains none of them."""
    command = [environment / "bin" / "python", "-c", USE]
    done = subprocess.run(command, check=True, cwd=environment, stdout=subprocess.PIPE, text=True)
    return [Path(line) for line in done.stdout.split()]


@pytest.fixture
def wheel(checkout, tmp_path):
    options = ("--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable)
    uv("build", *options, "--out-dir", tmp_path, checkout)
    return next(tmp_path.glob("flytekitplugins_kfpytorch-2*.whl"))


def test_wheel_contains_only_the_packages(wheel):
    content = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = (path for name in PACKAGES for path in (ROOT / name).rglob("*"))
    assert content == {
        str(path.relative_to(ROOT)) for path in sources if path.suffix == ".py" or path.name in DATA
    }


def test_wheel_works_beside_another_plugin(environment, wheel):
    install(environment, wheel)
    assert all(path.is_relative_to(environment) for path in origins(environment))
    command = [environment / "bin" / "kfpytorch", "--version"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout == f"kfpytorch, version {wheel.name.split('-')[1]}\n"


def test_backend_extra_covers_the_backend_imports(wheel):
    """Check that the extra `backend` covers every import except flytekit, without torch."""
    sources = [path for path in (ROOT / "backend_plugin").rglob("*.py") if path != BURN_IN]
    foreign = set().union(*(list_imports(path) for path in sources)) - sys.stdlib_module_names - set(PACKAGES)
    traced = {"opentelemetry"}  # An optional feature; the extra `otel` contains this package.
    brought = {MODULES.get(each.name, each.name.replace("-", "_")) for each in read_extra(wheel, "backend")}
    # Only Python files of tasks, and flytekit's own server, need flytekit.
    assert foreign - traced == {"flytekit", *brought}


MODULES = {
    "grpcio": "grpc",
    "grpcio-health-checking": "grpc_health",
    "grpcio-reflection": "grpc_reflection",
    "protobuf": "google",
    "python-json-logger": "pythonjsonlogger",
    "pyyaml": "yaml",
}
"""The modules whose names are not those of their distributions."""


def read_extra(wheel, name):
    """Return the requirements of an extra, which the image of the server has without all others."""
    with zipfile.ZipFile(wheel) as archive:
        (file,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(archive.read(file).decode())
    requirements = map(Requirement, metadata.get_all("Requires-Dist", []))
    return [each for each in requirements if f'extra == "{name}"' in str(each.marker)]


def resolve(requirements):
    """Return the installed distributions that requirements need, and those that these need."""
    found = {}
    left = [each for each in requirements if each.marker and each.marker.evaluate({"extra": "backend"})]
    while left:
        name = canonicalize_name(left.pop().name)
        if name not in found:
            found[name] = distribution(name)
            needs = map(Requirement, found[name].requires or ())
            left += [each for each in needs if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def link(installed, site):
    for file in installed.files or ():
        target = site / file
        if ".." not in file.parts and file.suffix != ".pyc" and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file.locate())


def test_server_runs_with_the_backend_extra_without_flytekit(tmp_path, wheel):
    home = tmp_path / "image"
    uv("venv", "--quiet", "--python", sys.executable, home)
    site = next((home / "lib").glob("python*/site-packages"))
    needed = resolve(read_extra(wheel, "backend"))
    assert {"flytekit", "torch", "pandas"}.isdisjoint(needed)
    for each in needed.values():
        link(each, site)
    install(home, wheel)
    command, state = home / "bin" / "kfpytorch", tmp_path / "state"
    environ = {name: text for name, text in os.environ.items() if not name.startswith("KFPYTORCH_")}
    serve = [command, "serve", "--port", "0", "--state-dir", state]
    with subprocess.Popen(serve, env=environ, stderr=subprocess.PIPE, text=True) as server:
        assert any('"ready"' in line for line in server.stderr)
        health = [command, "health", "--server", state]
        done = subprocess.run(health, check=True, env=environ, stdout=subprocess.PIPE, text=True)
        server.terminate()
    assert done.stdout == "SERVING\n"
    (tmp_path / "task.py").touch()
    render = [command, "render", tmp_path / "task.py"]
    ended = subprocess.run(render, check=False, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert ended.stderr.startswith("kfpytorch needs flytekit to read a Python file, and it is not installed")


def test_editable_install_works_beside_another_plugin(environment, checkout):
    install(environment, "--editable", checkout)
    assert all(path.is_relative_to(checkout) for path in origins(environment))
    (link,) = environment.glob("lib/python*/site-packages/__editable__*")
    assert link.read_text().strip() == str(checkout)  # A path, and no import hook.


def test_generated_code_is_current(tmp_path):
    files = sorted(PROTOS.rglob("*.proto"))
    options = [f"--proto_path={PROTOS}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([SCRIPTS / "protoc", *options, *files], check=True)
    fresh = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*_pb2.py*")}
    assert fresh == {path.relative_to(PROTOS): path.read_text() for path in PROTOS.rglob("*_pb2.py*")}


@pytest.mark.parametrize("path", sorted(PROTOS.rglob("*_pb2.py")), ids=lambda path: path.name)
def test_generated_code_requires_no_runtime_version(path):
    assert "runtime_version" not in path.read_text()


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_generated_code_runs_with_each_protobuf_implementation(implementation):
    code = (
        "from kfpytorch_idl.v1 import job_ref_pb2, task_pb2\n"
        "ref = job_ref_pb2.JobRef.FromString(job_ref_pb2.JobRef(uid='').SerializeToString())\n"
        "assert ref.HasField('uid') and not ref.HasField('name')\n"
        "assert not task_pb2.TaskExtension().HasField('gang')"
    )
    environment = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=ROOT, env=environment)
