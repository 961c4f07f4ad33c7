"""How an emulated cluster is to be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend_plugin.embedded.events import Limits
from backend_plugin.embedded.kubelet_options import BackOff, LogLimits
from backend_plugin.embedded.work import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedOptions:
    """What a person may say of an emulated cluster; all of it may differ when the state is opened again."""

    nodes: int = 2
    """How many there are: ``node-1``, ``node-2``, ..."""
    capacity: Mapping[str, str] = field(default_factory=dict)
    """What each node has, by Kubernetes' resource names; what is not said is this machine's. Of GPUs every
    node has others, of cpu and memory each has the whole machine's."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that every node has beside the usual ones, for jobs that select their nodes."""
    durable: bool = False
    """Pods outlive the server, and the next one goes on with them; otherwise they end with it."""
    code: Path = field(default_factory=Path.cwd)
    """Where the code of tasks is."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Patterns of image names → virtual environments, ``.`` for the server's own; the first that fits."""
    strict_images: bool = False
    """An image that fits none is as one that cannot be pulled; otherwise it is the server's environment."""
    pass_env: Sequence[str] = ()
    """Patterns of further variables of the server that containers get, too."""
    open_files: int | None = None
    """How many files each process of a pod may have open; None: as many as the server when it was started."""
    pod_templates: Path | None = None
    """A YAML or JSON file with PodTemplates, or a folder of such files."""
    lost_after: float = 1.0
    """Seconds until the pods of a lost node are given up; five minutes in a cluster."""
    orphaned_after: float = 40.0
    """Seconds until a pod is removed whose author chose a node that is not there; as long as in a cluster."""
    restarts: BackOff = field(default_factory=BackOff)
    """How soon a container is started again that has ended."""
    logs: LogLimits = field(default_factory=LogLimits)
    """How much of what containers write is kept."""
    backoff: Backoff = field(default_factory=Backoff)
    """How soon a job is tried again of which a pod or a service was refused."""
    events: Limits = field(default_factory=Limits)
    """How many events are kept, and how long."""
