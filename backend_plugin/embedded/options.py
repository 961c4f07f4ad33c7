"""Options of an embedded cluster, and the properties of this machine that pods use."""

import fnmatch
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

RETRY_SECONDS: Final = 1.0
"""Seconds before an operation is repeated after an error of the machine, such as a full disk or pipe, or too
many processes or open files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartBackoff:
    """The delay before a container is restarted, in seconds, with the kubelet's defaults.

    The first restart has no delay. Later delays start at `first` and double up to `most`.
    """

    first: float = 10
    most: float = 300
    forget: float = 600
    """A container that ended more than this many seconds after its last start is restarted without delay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedOptions:
    """The options of an embedded cluster. They may differ each time a state directory is opened."""

    nodes: int = 2
    """The number of nodes: ``node-1``, ``node-2``, ..."""
    capacity: Mapping[str, str] = field(default_factory=dict)
    """The capacity of each node by Kubernetes resource name; the default is that of this machine. Each node
    has all CPUs and the whole memory of the machine, but a GPU belongs to one node."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Additional labels of every node, for jobs that select their nodes."""
    pod_templates: Path | None = None
    """A YAML or JSON file with PodTemplates, or a directory with these files."""
    lost_after: float = 1.0
    """Seconds before the pods of an unreachable node fail; five minutes in Kubernetes."""
    code: Path = field(default_factory=Path.cwd)
    """The directory with the code of the tasks. It is added to the PYTHONPATH of every container."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Virtual environments by image name pattern (see `fnmatch`); ``.`` is the environment of the server. The
    first matching pattern applies."""
    strict_images: bool = False
    """True if an image that matches no pattern in `images` cannot be pulled. If False, a container with such
    an image runs in the virtual environment of the server."""
    durable: bool = False
    """True if pods keep running when the server stops, so that the next server takes them over. If False,
    pods end with the server."""
    pass_env: Sequence[str] = ()
    """Name patterns of additional environment variables that pods inherit from the server."""
    back_off: RestartBackoff = field(default_factory=RestartBackoff)
    """The delay before an ended container is restarted."""
    master_patience: float = 200
    """Seconds that a worker waits for the master of its job. The default is that of the training operator:
    100 attempts, one every two seconds."""
    shim_patience: float = 10
    """Seconds that a pod may take to end after its grace period. Then its shim, the process that runs the
    containers, is killed. A shim needs one or two seconds on a machine that starts hundreds of pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInfo:
    """The properties of this machine that pods see."""

    environment: Mapping[str, str]
    """The environment variables that pods inherit."""
    prefix: str
    """The directory of the server's virtual environment."""
    cpus: int
    memory: int
    psutil: str
    """The directory in which psutil is installed; empty if it is not installed."""

    @classmethod
    def from_host(cls, pass_env: Sequence[str]) -> "HostInfo":
        """Return the properties of this machine; `pass_env` are patterns of further variables to inherit."""
        psutil = importlib.util.find_spec("psutil")
        return cls(
            environment=select_inherited_variables(os.environ, pass_env),
            prefix=sys.prefix,
            cpus=os.cpu_count() or 1,
            psutil=str(Path(psutil.origin).parent.parent) if psutil and psutil.origin else "",
            memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        )


def select_inherited_variables(environment: Mapping[str, str], further: Sequence[str]) -> Mapping[str, str]:
    """Return the environment variables for pods: a fixed set, and those that match a pattern in `further`."""
    patterns = (*_PASSED, *further)
    return {
        name: value
        for name, value in environment.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }


_PASSED: Final = (
    "HOME", "LANG", "LC_*", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "TZ", "USER",
    "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
)  # fmt: skip
