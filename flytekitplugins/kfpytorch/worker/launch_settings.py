"""Settings of an elastic job, which `local_run` builds and `elastic_agent` applies."""

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
    """Maximum seconds between two checks of the workers. The end of a worker is detected immediately."""
    start_method: str
    shutdown_timeout: float
    """The number of seconds between SIGTERM and SIGKILL when the agent stops a worker."""
    rdzv_backend: str = "c10d"
    local_addr: str | None = None
    on_one_machine: bool = False
    """True if all nodes run on this machine, so that no other machine shares the store."""

    @property
    def host(self) -> str:
        """The host of `rdzv_endpoint`, with its domain and without the port."""
        return self.rdzv_endpoint.rpartition(":")[0]
