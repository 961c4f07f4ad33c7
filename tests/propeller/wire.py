"""The gRPC services of a connector, called as propeller does with the settings of our chart."""

import json
from pathlib import Path
from typing import Any, Final

import grpc
import yaml
from flyteidl.admin import agent_pb2
from flyteidl.service import agent_pb2_grpc

DEADLINE: Final = 10.0
CONNECTOR: Final = yaml.safe_load(
    (Path(__file__).parents[2] / "charts/kfpytorch-backend/files/connector.yaml").read_text()
)
"""Propeller's connector settings in our chart, except for the address."""
SERVICE_CONFIG: Final = json.loads(CONNECTOR["defaultConnector"]["defaultServiceConfig"])
"""The gRPC retry settings; without them a short outage fails workflows."""
# Reconnect soon after a restart of the server; the default backoff grows to minutes.
_RECONNECT: Final = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500))


class Wire:
    """A connection to a connector, which survives restarts of the server."""

    def __init__(
        self,
        endpoint: str,
        token: str | None = None,
        *,
        service_config: dict[str, Any] | None = SERVICE_CONFIG,
        deadline: float = DEADLINE,
    ) -> None:
        config = [("grpc.service_config", json.dumps(service_config))] if service_config else []
        # By default, channels of one process to the same address share a connection and its failures.
        options = [*config, *_RECONNECT, ("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(endpoint, options=options)
        self.deadline = deadline
        self.metadata = [("authorization", f"Bearer {token}")] if token else []
        self._tasks = agent_pb2_grpc.AsyncAgentServiceStub(self.channel)
        self._about = agent_pb2_grpc.AgentMetadataServiceStub(self.channel)

    def create(self, request: agent_pb2.CreateTaskRequest) -> bytes:
        """Create a task and return its reference."""
        return bytes(self._call(self._tasks.CreateTask, request).resource_meta)

    def get(self, request: agent_pb2.GetTaskRequest) -> Any:
        """Start a GetTask call and return its future."""
        return self._tasks.GetTask.future(request, timeout=self.deadline, metadata=self.metadata)

    def delete(self, request: agent_pb2.DeleteTaskRequest) -> None:
        self._call(self._tasks.DeleteTask, request)

    def _call(self, method: Any, request: Any) -> Any:
        return method(request, timeout=self.deadline, metadata=self.metadata)

    def close(self) -> None:
        self.channel.close()


_CATEGORY: Final = agent_pb2.TaskCategory(name="pytorch", version=1)


def get_request(meta: bytes, output_prefix: str) -> agent_pb2.GetTaskRequest:
    return agent_pb2.GetTaskRequest(
        task_type="pytorch", resource_meta=meta, task_category=_CATEGORY, output_prefix=output_prefix
    )


def delete_request(meta: bytes) -> agent_pb2.DeleteTaskRequest:
    return agent_pb2.DeleteTaskRequest(task_type="pytorch", resource_meta=meta, task_category=_CATEGORY)
