"""Builds wheels of small packages and an environment for them, for tests without a package index."""

import sysconfig
import venv
from importlib.util import find_spec
from zipfile import ZipFile


def build_wheel(folder, name, version, *requires):
    """Write the wheel of a package whose only module has a constant `VERSION`, and return its path."""
    info = f"{name}-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": "\n".join([*metadata, *(f"Requires-Dist: {each}" for each in requires)]) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return wheel


def create_environment(folder):
    """Create an environment with pip and the packages of this one, which may lack pip; return its path."""
    venv.create(folder, with_pip=find_spec("pip") is None)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "tests.pth").write_text(sysconfig.get_path("purelib"))
    return folder
