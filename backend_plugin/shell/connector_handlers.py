"""The gRPC handlers of the connector: its calls, and the calls that list its task types."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc
from flyteidl.admin import agent_pb2 as admin
from google.protobuf.message import Message

from backend_plugin.shell.connector_service import ConnectorService, Context

NAME: Final = "kfpytorch"
TASK_TYPES: Final = ("pytorch",)
# FlytePropeller uses the last listed version of a task type, and its default connector for the others.
VERSIONS: Final = (0, 1)


class ConnectorMetadataService:
    """The calls of `flyteidl.service.AgentMetadataService`, which list the supported task types."""

    _AGENT: Final = admin.Agent(
        name=NAME,
        supported_task_types=TASK_TYPES,
        supported_task_categories=[
            admin.TaskCategory(name=name, version=version) for name in TASK_TYPES for version in VERSIONS
        ],
    )

    async def get_agent(self, request: admin.GetAgentRequest, context: Context) -> admin.GetAgentResponse:
        """Return this connector if it is requested by its name."""
        if request.name != NAME:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"no agent {request.name[:80]!r} here; the only agent is {NAME!r}"
            )
        return admin.GetAgentResponse(agent=self._AGENT)

    async def list_agents(self, _: admin.ListAgentsRequest, __: Context) -> admin.ListAgentsResponse:
        """Return this connector as the only one."""
        return admin.ListAgentsResponse(agents=[self._AGENT])


def build_handlers(tasks: ConnectorService) -> Sequence["grpc.GenericRpcHandler[Any, Any]"]:
    """Return the gRPC handlers of both services."""
    listed = ConnectorMetadataService()
    return (
        grpc.method_handlers_generic_handler(
            "flyteidl.service.AsyncAgentService",
            {
                "CreateTask": grpc.unary_unary_rpc_method_handler(
                    tasks.create_task, response_serializer=_serialize_response
                ),
                "GetTask": _build_unary_handler(tasks.get_task, admin.GetTaskRequest),
                "DeleteTask": _build_unary_handler(tasks.delete_task, admin.DeleteTaskRequest),
                "GetTaskMetrics": _build_unary_handler(tasks.get_task_metrics, admin.GetTaskMetricsRequest),
                "GetTaskLogs": grpc.unary_stream_rpc_method_handler(
                    tasks.get_task_logs, admin.GetTaskLogsRequest.FromString, _serialize_response
                ),
            },
        ),
        grpc.method_handlers_generic_handler(
            "flyteidl.service.AgentMetadataService",
            {
                "GetAgent": _build_unary_handler(listed.get_agent, admin.GetAgentRequest),
                "ListAgents": _build_unary_handler(listed.list_agents, admin.ListAgentsRequest),
            },
        ),
    )


def _build_unary_handler(
    call: Callable[..., object], request: type[Message]
) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.unary_unary_rpc_method_handler(call, request.FromString, _serialize_response)


def _serialize_response(answer: Message | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()
