"""The gRPC server of `pyflyte serve connector`, without its web hooks, which require an HTTP client."""

import asyncio
import importlib
import sys

import grpc
from flyteidl.service.agent_pb2_grpc import (
    add_AgentMetadataServiceServicer_to_server,
    add_AsyncAgentServiceServicer_to_server,
)
from flytekit.extend.backend.connector_service import AsyncConnectorService, ConnectorMetadataService


async def _main() -> None:
    server = grpc.aio.server()
    add_AsyncAgentServiceServicer_to_server(AsyncConnectorService(), server)
    add_AgentMetadataServiceServicer_to_server(ConnectorMetadataService(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    importlib.import_module(sys.argv[1])
    asyncio.run(_main())
