"""Options of an embedded cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend_plugin.embedded.events import EventRetention
from backend_plugin.embedded.kubelet_options import LogLimits, RestartBackoff
from backend_plugin.embedded.workqueue import RetryBackoff


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedOptions:
    """The options of an embedded cluster. They may change each time the state is opened."""

    nodes: int = 2
    """The number of nodes: ``node-1``, ``node-2``, ..."""
    capacity: Mapping[str, str] = field(default_factory=dict)
    """The capacity of each node by Kubernetes resource name; the default is that of this machine. Each node
    has all CPUs and the whole memory of the machine, but a GPU belongs to one node."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Additional labels of every node, for jobs that select their nodes."""
    durable: bool = False
    """Pods keep running when the server stops, and the next server adopts them. If False, they end with
    it."""
    code: Path = field(default_factory=Path.cwd)
    """The directory with the code of the tasks."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Virtual environments by image name pattern; ``.`` is the environment of the server. The first matching
    pattern applies."""
    strict_images: bool = False
    """Report an image without a matching pattern as failed to pull. If False, it gets the environment of the
    server."""
    pass_env: Sequence[str] = ()
    """Patterns of additional environment variables that containers inherit from the server."""
    open_files: int | None = None
    """The limit on open files of each process of a pod. None means the limit that the server started with."""
    pod_templates: Path | None = None
    """A YAML or JSON file with PodTemplates, or a directory with these files."""
    lost_after: float = 1.0
    """Seconds before the pods of an unreachable node fail; five minutes in Kubernetes."""
    orphaned_after: float = 40.0
    """Seconds before a pod on a missing node is removed; the same as in Kubernetes."""
    restarts: RestartBackoff = field(default_factory=RestartBackoff)
    """The delay before an ended container is restarted."""
    logs: LogLimits = field(default_factory=LogLimits)
    """The log rotation of a container run."""
    backoff: RetryBackoff = field(default_factory=RetryBackoff)
    """The retry delay of a job after the API server rejected one of its pods or services."""
    events: EventRetention = field(default_factory=EventRetention)
    """The retention of events."""
