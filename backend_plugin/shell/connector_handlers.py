"""The gRPC handlers of the connector: its calls, and the calls that list its task types."""

from collections.abc import Sequence
from typing import Any, Final

import grpc
from flyteidl.admin import agent_pb2 as admin

from backend_plugin.core.names import TASK_TYPE
from backend_plugin.shell.connector_service import ConnectorService
from backend_plugin.shell.rpc_handlers import CallFailed, build_stream_handler, build_unary_handler

NAME: Final = "kfpytorch"
TASK_TYPES: Final = (TASK_TYPE,)
# FlytePropeller uses the last listed version of a task type, and its default connector for other versions.
VERSIONS: Final = (0, 1)
_AGENT: Final = admin.Agent(
    name=NAME,
    supported_task_types=TASK_TYPES,
    supported_task_categories=[
        admin.TaskCategory(name=name, version=version) for name in TASK_TYPES for version in VERSIONS
    ],
)


async def _get_agent(request: admin.GetAgentRequest) -> admin.GetAgentResponse:
    """Return the description of this connector; raise `CallFailed` (NOT_FOUND) for another name."""
    if request.name != NAME:
        raise CallFailed(
            grpc.StatusCode.NOT_FOUND, f"no agent {request.name[:80]!r} here; the only agent is {NAME!r}"
        )
    return admin.GetAgentResponse(agent=_AGENT)


async def _list_agents(_: admin.ListAgentsRequest) -> admin.ListAgentsResponse:
    return admin.ListAgentsResponse(agents=[_AGENT])


def build_handlers(tasks: ConnectorService) -> Sequence["grpc.GenericRpcHandler[Any, Any]"]:
    """Return the gRPC handlers of the connector service, and of the service that lists the task types."""
    return (
        grpc.method_handlers_generic_handler(
            "flyteidl.service.AsyncAgentService",
            {
                "CreateTask": build_unary_handler(tasks.create_task, None),
                "GetTask": build_unary_handler(tasks.get_task, admin.GetTaskRequest),
                "DeleteTask": build_unary_handler(tasks.delete_task, admin.DeleteTaskRequest),
                "GetTaskLogs": build_stream_handler(tasks.get_task_logs, admin.GetTaskLogsRequest),
            },
        ),
        grpc.method_handlers_generic_handler(
            "flyteidl.service.AgentMetadataService",
            {
                "GetAgent": build_unary_handler(_get_agent, admin.GetAgentRequest),
                "ListAgents": build_unary_handler(_list_agents, admin.ListAgentsRequest),
            },
        ),
    )
