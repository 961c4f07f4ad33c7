"""The program that lists the packages in the image of a training runtime, and the parser of its output."""

from collections.abc import Iterable
from typing import Final

import msgspec

from backend_plugin.core.errors import BackendError

_MARK: Final = "kfpytorch: "
COMMAND: Final = ("sh", "-c", 'exec "$(command -v python || command -v python3)" -c "$0"')
"""The command of the container; its argument is `PROGRAM`."""
PROGRAM: Final = f"""\
import importlib.metadata, json, shutil, subprocess, sys

def report(*values):
    print({_MARK!r} + json.dumps(values), flush=True)

report("python", sys.version)
for each in importlib.metadata.distributions():
    report("package", each.metadata["Name"], each.version)
if shutil.which("nvidia-smi"):
    done = subprocess.run(["nvidia-smi"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in done.stdout.splitlines():
        report("gpus", line)
report("end")
"""


class PackagesUnknown(BackendError):
    """The packages are unknown: the job that lists them has not ended, or its report is incomplete."""


class RuntimePackages(msgspec.Struct, frozen=True, kw_only=True):
    """The software in the image of a training runtime."""

    python: str
    """The version of Python, with its build."""
    packages: dict[str, str]
    """The version of each installed package, sorted by name."""
    gpus: str
    """The output of nvidia-smi; empty if the image or the node does not have it."""


def parse_report(lines: Iterable[str]) -> RuntimePackages:
    """Return the report in the lines of a log; raise `PackagesUnknown` if its end is missing."""
    python, gpus = "", []
    versions: dict[str, str] = {}
    for entry in _read_entries(lines):
        match entry:
            case ["python", str(version)]:
                python = version
            case ["package", str(name), str(version)]:
                versions[name] = version
            case ["gpus", str(text)]:
                gpus.append(text)
            case _:
                pass
    packages = dict(sorted(versions.items(), key=lambda item: item[0].lower()))
    return RuntimePackages(python=python, packages=packages, gpus="\n".join(gpus))


def _read_entries(lines: Iterable[str]) -> list[object]:
    entries = [_decode_line(line) for line in lines]
    if ["end"] not in entries:
        raise PackagesUnknown("the log of the job does not contain the complete list of packages")
    return entries


def _decode_line(line: str) -> object:
    if not line.startswith(_MARK):
        return None
    try:
        return msgspec.json.decode(line.removeprefix(_MARK))
    except msgspec.DecodeError:
        return None
