"""The training runtimes of Kubeflow Trainer in a cluster: templates from which jobs can be created."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from backend_plugin.core.errors import BackendError
from backend_plugin.core.values import join_first

_LONGEST_PART: Final = 20
_LISTED: Final = 6
_NO_NAME: Final = re.compile("[^a-z0-9]+")


class RuntimeNotFound(BackendError):
    """No training runtime has the name; the message lists those that exist."""


class AmbiguousRuntime(BackendError):
    """The caller must name the namespace of a training runtime.

    Several namespaces have a runtime of this name, or it is a ClusterTrainingRuntime, which has no namespace.
    """


class UnsupportedRuntime(BackendError):
    """The server cannot run a job that lists the Python packages of the training runtime; see the message."""


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """A training runtime: a TrainingRuntime or a ClusterTrainingRuntime."""

    name: str
    kind: str
    namespace: str = ""
    """Empty for a ClusterTrainingRuntime."""
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
    """The job for which this backend created the runtime; empty for other runtimes."""
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


class NamedRuntime(Protocol):
    """The namespace and the name of a training runtime."""

    @property
    def namespace(self) -> str:
        """The namespace of the runtime; empty for a ClusterTrainingRuntime."""

    @property
    def name(self) -> str:
        """The name of the runtime."""


Known = TypeVar("Known", bound=NamedRuntime)


def find_runtime(name: str, namespace: str | None, runtimes: Iterable[Known]) -> Known:
    """Return the runtime with this name; a TrainingRuntime precedes a ClusterTrainingRuntime.

    Raises `RuntimeNotFound` if no runtime has the name. Raises `AmbiguousRuntime` if `namespace` is None, and
    several namespaces have a TrainingRuntime of the name.
    """
    among = [each for each in runtimes if namespace is None or each.namespace in ("", namespace)]
    named = [each for each in among if each.name == name]
    if not named:
        raise RuntimeNotFound(_format_no_match(name, among))
    namespaced = [each for each in named if each.namespace]
    if len(namespaced) > 1:
        places = ", ".join(sorted(each.namespace for each in namespaced))
        raise AmbiguousRuntime(f"the namespaces {places} have a runtime {name}; write --namespace NAME")
    return (namespaced or named)[0]


def _format_no_match(name: str, among: Sequence[NamedRuntime]) -> str:
    existing = sorted({each.name for each in among})
    if not existing:
        return f"there is no runtime {name}, and no other runtime"
    return f"there is no runtime {name}; the existing runtimes are {join_first(existing, _LISTED)}"


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
