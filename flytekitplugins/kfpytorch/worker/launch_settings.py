"""Settings of a run, which `local_run` builds and `process_supervisor` and `elastic_agent` apply."""

from dataclasses import dataclass
from typing import Any, Final

FILE_NAME: Final = "settings.pkl"


@dataclass(frozen=True, kw_only=True)
class ElasticLaunchConfig:
    """Settings of torch's elastic agent, with the field names of its `LaunchConfig`."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    run_id: str
    rdzv_endpoint: str
    rdzv_configs: dict[str, Any]
    max_restarts: int
    monitor_interval: float
    """Maximum seconds between two checks of the workers; the end of a worker is noticed immediately."""
    start_method: str
    shutdown_timeout: float
    """Seconds between SIGTERM and SIGKILL for a worker."""
    rdzv_backend: str = "c10d"
    local_addr: str | None = None
    on_one_machine: bool = False
    """True if all nodes run on this machine, so that no other machine shares the store."""


@dataclass(frozen=True, kw_only=True)
class ProcessSpec:
    """A process that the caller starts: a replica, or the agent of a node."""

    name: str
    target: str
    args: dict[str, Any]
    env: dict[str, str]
    slots: tuple[int, ...]
    """The numbers of the console's slots for the output of the process and of the workers that it starts."""
    patience: float
    is_agent: bool = False
