"""The gRPC services of a connector, called as propeller does with the settings of our chart."""

import json
from pathlib import Path

import grpc
import yaml
from flyteidl.admin import agent_pb2
from flyteidl.service import agent_pb2_grpc

DEADLINE = 10.0  # Propeller's own timeout for a call, in seconds.
CONNECTOR = yaml.safe_load(
    (Path(__file__).parents[2] / "charts/kfpytorch-backend/files/connector.yaml").read_text()
)
"""Propeller's connector settings in our chart, except for the address."""
SERVICE_CONFIG = json.loads(CONNECTOR["defaultConnector"]["defaultServiceConfig"])
"""The gRPC retry settings; without them a short outage fails workflows."""
# Reconnect soon after a restart of the server; the default backoff grows to minutes.
_RECONNECT = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500))

_CATEGORY = agent_pb2.TaskCategory(name="pytorch", version=1)


class Wire:
    """A connection to a connector, which survives restarts of the server."""

    def __init__(self, endpoint, token=None, *, service_config=SERVICE_CONFIG):
        config = [("grpc.service_config", json.dumps(service_config))] if service_config else []
        # By default, channels of one process to the same address share a connection and its failures.
        options = [*config, *_RECONNECT, ("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(endpoint, options=options)
        self.metadata = [("authorization", f"Bearer {token}")] if token else []
        self._tasks = agent_pb2_grpc.AsyncAgentServiceStub(self.channel)
        self._options = {"timeout": DEADLINE, "metadata": self.metadata}

    def create(self, request):
        return bytes(self._tasks.CreateTask(request, **self._options).resource_meta)

    def get(self, meta, output_prefix):
        request = agent_pb2.GetTaskRequest(
            task_type="pytorch", resource_meta=meta, task_category=_CATEGORY, output_prefix=output_prefix
        )
        return self._tasks.GetTask(request, **self._options).resource

    def delete(self, meta):
        about = {"task_type": "pytorch", "resource_meta": meta, "task_category": _CATEGORY}
        self._tasks.DeleteTask(agent_pb2.DeleteTaskRequest(**about), **self._options)

    def close(self):
        self.channel.close()
