"""How an embedded cluster runs pods: what its owner chose, and what the machine is.

Lives here: values. Does not: what follows from them; see `pod_launch`.
"""

import fnmatch
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kfpytorch_common.environment import LOOPBACK_INTERFACE


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """How long a container that ended waits until it is started again, in seconds; the kubelet's numbers.

    The first restart is at once.
    """

    first: float = 10
    most: float = 300
    forget: float = 600
    """Who was started longer ago begins anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """How much of what a run writes is kept; the kubelet's numbers."""

    segment_bytes: int = 10 * 1024 * 1024
    segments: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletOptions:
    """What the owner of the machine chose."""

    code: Path = field(default_factory=Path.cwd)
    """The directory that every process finds its modules in."""
    images: Mapping[str, str] = field(default_factory=dict)
    """A pattern of image names, as in `fnmatch`, to a virtual environment; ``.`` for the server's own. The
    first that fits decides."""
    strict_images: bool = False
    """An image that fits none waits like one that cannot be pulled; else it gets the server's own."""
    durable: bool = False
    """Pods outlive the server."""
    pass_env: Sequence[str] = ()
    """Patterns of further variables of the server that pods are given."""
    back_off: BackOff = field(default_factory=BackOff)
    logs: LogLimits = field(default_factory=LogLimits)
    open_files: int | None = None
    """How many files each process of a pod may have open; None: as many as the server."""
    master_patience: float = 200
    """How long a worker waits for its master: the operator's 100 tries, two seconds apart."""
    shim_patience: float = 5
    """Seconds that a shim may leave an order to end unread before it is killed; one on a machine that starts
    hundreds of pods takes a second or two."""
    last_patience: float = 30
    """Seconds that anybody waits for the end of a pod that is to be forgotten: a process may wait for a disk
    for ever, and cannot be killed."""
    nice: int = 5
    """So that the server answers while every core trains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What pods find: this machine, as the server does."""

    environment: Mapping[str, str]
    """What pods inherit."""
    prefix: str
    """The server's own virtual environment."""
    loopback: str
    """The name of the interface that is no network."""
    cpus: int
    memory: int
    psutil: str
    """Where it is installed."""

    @classmethod
    def this(cls, pass_env: Sequence[str] = ()) -> "Machine":
        """The one that we run on; pods inherit a little of our environment, and what these patterns name."""
        return cls(
            environment=inherited(os.environ, pass_env),
            prefix=sys.prefix,
            loopback=LOOPBACK_INTERFACE,
            cpus=os.cpu_count() or 1,
            psutil=_psutil(),
            memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        )


def inherited(environment: Mapping[str, str], further: Sequence[str]) -> Mapping[str, str]:
    """The variables that say where things are and how text is written, and those of these patterns."""
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


def _psutil() -> str:
    found = importlib.util.find_spec("psutil")
    return str(Path(found.origin).parent.parent) if found and found.origin else ""
