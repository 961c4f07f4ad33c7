"""The training runtimes of Kubeflow Trainer in a cluster: templates from which jobs can be created.

A job runs `PROGRAM` to list the packages in the image of a runtime.
"""

import re
from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

import msgspec

from backend_plugin.core.errors import BackendError
from backend_plugin.core.values import join_first

_LONGEST_PART: Final = 20
_LISTED: Final = 6
_NO_NAME: Final = re.compile("[^a-z0-9]+")
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


class RuntimeNotFound(BackendError):
    """No training runtime has the name; the message lists those that exist."""


class AmbiguousRuntime(BackendError):
    """The caller must name the namespace of a training runtime.

    Several namespaces have a runtime of this name, or it is a ClusterTrainingRuntime, which has no namespace.
    """


class UnsupportedRuntime(BackendError):
    """The server cannot list the Python packages of the training runtime; the message has the reason."""


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """A training runtime: a TrainingRuntime or a ClusterTrainingRuntime."""

    name: str
    kind: str
    namespace: str = ""
    """The namespace; empty for a ClusterTrainingRuntime."""
    framework: str = ""
    """The framework in its label; empty without the label, and then the Kubeflow SDK ignores the runtime."""
    nodes: int = 1
    processes: str = ""
    """The number of processes of a node, or a word such as ``auto``; empty if the runtime sets neither."""
    device: str = ""
    """The kind of device in the limits of a node, such as ``gpu`` or ``cpu``; empty if there is none."""
    device_count: str = ""
    """The quantity of `device`; empty without a device."""
    image: str = ""
    job: str = ""
    """The name of the job for which this backend created the runtime; empty for other runtimes."""
    role: str = ""
    """The name of the replicated job with the trainer; empty if there is none."""
    initializers: tuple[str, ...] = ()
    """The names of the replicated jobs that prepare a data set or a model."""


class PackageJob(msgspec.Struct, frozen=True, kw_only=True):
    """The name, namespace and time limit of a job that lists the Python packages of a training runtime."""

    name: str
    namespace: str
    seconds: int
    """The time after which the job fails."""


class _NamedRuntime(Protocol):
    """The name and namespace of a training runtime; a ClusterTrainingRuntime has an empty namespace."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...


Known = TypeVar("Known", bound=_NamedRuntime)


def find_runtime(name: str, namespace: str | None, runtimes: Iterable[Known]) -> Known:
    """Return the runtime with this name; a TrainingRuntime precedes a ClusterTrainingRuntime.

    Raises `RuntimeNotFound` if no runtime has the name. Raises `AmbiguousRuntime` if `namespace` is None, and
    several namespaces have a TrainingRuntime of the name.
    """
    among = [each for each in runtimes if namespace is None or each.namespace in ("", namespace)]
    named = [each for each in among if each.name == name]
    if not named:
        existing = sorted({each.name for each in among})
        listed = f"; the existing runtimes are {join_first(existing, _LISTED)}"
        others = listed if existing else ", and no other runtime"
        raise RuntimeNotFound(f"there is no runtime {name}{others}")
    namespaced = [each for each in named if each.namespace]
    if len(namespaced) > 1:
        places = ", ".join(sorted(each.namespace for each in namespaced))
        raise AmbiguousRuntime(f"the namespaces {places} have a runtime {name}; write --namespace NAME")
    return (namespaced or named)[0]


def require_packages(runtime: Runtime) -> None:
    """Raise `UnsupportedRuntime` if no job can list the Python packages in the training runtime's image."""
    if not runtime.role:
        raise UnsupportedRuntime(
            f"{runtime.kind} {runtime.name} has no training container, whose name must be node"
        )
    if runtime.initializers:
        raise UnsupportedRuntime(
            f"{runtime.kind} {runtime.name} first runs {', '.join(runtime.initializers)}, which needs the "
            "settings of a job; run a job of it, and list the packages there"
        )


def build_job_name(runtime: str, token: str) -> str:
    """Return the name of a job that lists a training runtime's packages; `token` makes the name unique."""
    part = _NO_NAME.sub("-", runtime.lower())[:_LONGEST_PART].strip("-")
    return f"packages-{part}-0-{token}"


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
