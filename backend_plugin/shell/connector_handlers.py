"""The gRPC handlers of the connector: its calls, and the calls that list its task types."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import grpc
from flyteidl.admin import agent_pb2 as admin
from google.protobuf.message import Message

from backend_plugin.core.names import TASK_TYPE
from backend_plugin.shell.connector_service import CallFailed, ConnectorService

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

NAME: Final = "kfpytorch"
TASK_TYPES: Final = (TASK_TYPE,)
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

    async def get_agent(self, request: admin.GetAgentRequest) -> admin.GetAgentResponse:
        """Return this connector if it is requested by its name."""
        if request.name != NAME:
            raise CallFailed(
                grpc.StatusCode.NOT_FOUND, f"no agent {request.name[:80]!r} here; the only agent is {NAME!r}"
            )
        return admin.GetAgentResponse(agent=self._AGENT)

    async def list_agents(self, _: admin.ListAgentsRequest) -> admin.ListAgentsResponse:
        """Return this connector as the only one."""
        return admin.ListAgentsResponse(agents=[self._AGENT])


def build_handlers(tasks: ConnectorService) -> Sequence["grpc.GenericRpcHandler[Any, Any]"]:
    """Return the gRPC handlers of both services."""
    listed = ConnectorMetadataService()
    return (
        grpc.method_handlers_generic_handler(
            "flyteidl.service.AsyncAgentService",
            {
                "CreateTask": _build_unary_handler(tasks.create_task, None),
                "GetTask": _build_unary_handler(tasks.get_task, admin.GetTaskRequest),
                "DeleteTask": _build_unary_handler(tasks.delete_task, admin.DeleteTaskRequest),
                "GetTaskMetrics": _build_unary_handler(tasks.get_task_metrics, admin.GetTaskMetricsRequest),
                "GetTaskLogs": _build_stream_handler(tasks.get_task_logs, admin.GetTaskLogsRequest),
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
    call: Callable[[Any], Awaitable[Message | bytes]], request_type: type[Message] | None
) -> "grpc.RpcMethodHandler[Any, Any]":
    """Return the handler of a call; without a request type, the call receives the serialized request."""

    async def handle(request: Any, context: Context) -> Message | bytes:
        try:
            return await call(request)
        except CallFailed as failed:
            await context.abort(failed.code, failed.details)

    read = None if request_type is None else request_type.FromString
    return grpc.unary_unary_rpc_method_handler(handle, read, _serialize_response)


def _build_stream_handler(
    call: Callable[[Any], AsyncIterator[Message]], request_type: type[Message]
) -> "grpc.RpcMethodHandler[Any, Any]":
    async def handle(request: Any, context: Context) -> AsyncIterator[Message]:
        try:
            async for response in call(request):
                yield response
        except CallFailed as failed:
            await context.abort(failed.code, failed.details)

    return grpc.unary_stream_rpc_method_handler(handle, request_type.FromString, _serialize_response)


def _serialize_response(answer: Message | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()
