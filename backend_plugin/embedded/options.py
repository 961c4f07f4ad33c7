"""The options of an embedded cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend_plugin.embedded.events import Limits
from backend_plugin.embedded.kubelet_options import BackOff, LogLimits
from backend_plugin.embedded.work import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedOptions:
    """The options of an embedded cluster. All of them may change when its state is opened again."""

    nodes: int = 2
    """The number of nodes: ``node-1``, ``node-2``, ..."""
    capacity: Mapping[str, str] = field(default_factory=dict)
    """The capacity of each node, by Kubernetes resource names. The default for a resource is that of this
    machine. Each node has its own GPUs, but all CPUs and the whole memory of the machine."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of every node in addition to the usual ones, for jobs with a node selector."""
    durable: bool = False
    """Pods keep running without the server, and the next server adopts them. Otherwise they end with the
    server."""
    code: Path = field(default_factory=Path.cwd)
    """The directory with the code of the tasks."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Patterns of image names and their virtual environments, ``.`` for that of the server. The first match
    counts."""
    strict_images: bool = False
    """Pods with an image that matches no pattern fail to pull it. The default is the server's environment."""
    pass_env: Sequence[str] = ()
    """Patterns of environment variables of the server that containers inherit in addition."""
    open_files: int | None = None
    """The limit of open files for each process of a pod. None for the server's limit at its start."""
    pod_templates: Path | None = None
    """A YAML or JSON file with PodTemplates, or a directory of such files."""
    lost_after: float = 1.0
    """Seconds until the pods of a lost node are deleted. A real cluster waits five minutes."""
    orphaned_after: float = 40.0
    """Seconds until a pod with a missing `nodeName` is deleted, as long as in a real cluster."""
    restarts: BackOff = field(default_factory=BackOff)
    """The backoff between restarts of a container."""
    logs: LogLimits = field(default_factory=LogLimits)
    """The limits for the logs of containers."""
    backoff: Backoff = field(default_factory=Backoff)
    """The backoff after a pod or a service of a job was rejected."""
    events: Limits = field(default_factory=Limits)
    """The limits for the number and the age of events."""
