"""How a run is laid out: decided by `launch`, obeyed by `group` and `agent`."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What torch's elastic agent is told; the names are those of its `LaunchConfig`."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    run_id: str
    rdzv_endpoint: str
    rdzv_configs: dict[str, Any]
    max_restarts: int
    monitor_interval: float
    """Seconds; an upper bound, since a worker's end is noticed at once."""
    start_method: str
    shutdown_timeout: float
    """Seconds between asking workers to stop and killing them."""
    rdzv_backend: str = "c10d"
    local_addr: str | None = None
    on_one_machine: bool = False
    """All nodes are here, so nobody else's store has to be spared."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process that the caller starts itself: a replica, or the agent of a node."""

    name: str
    target: str
    args: dict[str, Any]
    env: dict[str, str]
    slots: tuple[int, ...]
    """The streams that it, or the workers that it starts, write to."""
    is_agent: bool = False
    patience: float = field(default=5.0)
    """Seconds between being asked to stop and being killed."""
