"""Options of an embedded cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backend_plugin.embedded.events import EventRetention
from backend_plugin.embedded.kubelet_options import KubeletOptions
from backend_plugin.embedded.workqueue import RetryBackoff


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedOptions(KubeletOptions):
    """The options of an embedded cluster. They may change each time the state is opened."""

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
    backoff: RetryBackoff = field(default_factory=RetryBackoff)
    """The retry delay of a job after the API server rejected one of its pods or services."""
    events: EventRetention = field(default_factory=EventRetention)
    """The retention of events."""
