"""An adapter that runs the task service of this backend in flytekit's connector server.

Run it in a stock connector image with ``pyflyte serve connector --modules
backend_plugin.flytekit_connector``. The import registers task type `pytorch`, versions 0 and 1. The
server of flytekit provides the port, health checks, metrics and shutdown. It drops some template fields and
the status codes of errors, and does not offer GetTaskLogs. `kfpytorch serve` does not have these limits.
"""

import asyncio
import logging
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from flyteidl.admin import agent_pb2 as admin
from flytekit.extend.backend.base_connector import (
    AsyncConnectorBase,
    ConnectorRegistry,
    Resource,
    ResourceMeta,
)

from backend_plugin.cli import clusters, serve_settings, server_assembly
from backend_plugin.cli.serve_settings import Configuration
from backend_plugin.core.errors import BackendError
from backend_plugin.shell import connector_service
from backend_plugin.shell.settings import ClusterKind

_LOG: Final = logging.getLogger(__name__)
# Settings that have no effect here, because flytekit's server has its own.
_NOT_OURS: Final = (
    *("host", "port", "tls.", "token-file", "max-receive-message-size", "max-send-message-size"),
    *("max-concurrent-rpcs", "drain-timeout", "metrics.", "log."),
)


class ConnectorUnavailable(BackendError):
    """The connector cannot run in flytekit's server, or has stopped."""


@dataclass
class TaskReference(ResourceMeta):  # type: ignore[misc]  # flytekit has no types.
    """The encoded reference to a task's job (`resource_meta`), which Flyte sends back with later calls."""

    data: bytes

    def encode(self) -> bytes:
        """Return the reference as bytes for Flyte."""
        return self.data

    @classmethod
    def decode(cls, data: bytes) -> "TaskReference":
        """Return the reference that Flyte sends back as `data`."""
        return cls(data)


@dataclass
class _CompleteResource(Resource):  # type: ignore[misc]
    """A flytekit `Resource` that keeps all fields of the GetTask response, also those that flytekit drops."""

    message_: admin.Resource | None = None

    async def to_flyte_idl(self) -> admin.Resource:
        """Return the `Resource` message of the response to GetTask, with all its fields."""
        return self.message_


class ServerHost:
    """Runs the server's services in flytekit's event loop, from the first call until that loop ends."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._begun: asyncio.Future[connector_service.ConnectorService] | None = None
        self._life: asyncio.Task[None] | None = None

    async def get_connector_service(self) -> connector_service.ConnectorService:
        """Return the task service; the first call starts it, and a call after a failure starts it again."""
        if self._begun is None:
            self._begun = asyncio.get_running_loop().create_future()
            self._life = asyncio.ensure_future(self._run_server(self._begun))
            self._life.add_done_callback(self._on_server_exit)
        return await asyncio.shield(self._begun)

    async def _run_server(self, begun: "asyncio.Future[connector_service.ConnectorService]") -> None:
        async with AsyncExitStack() as stack:
            try:
                here = await clusters.open_cluster(stack, self._configuration)
            except BackendError as error:
                begun.set_exception(error)
                return
            parts = server_assembly.assemble_server(here, self._configuration.server.settings)
            begun.set_result(parts.tasks)
            try:
                await parts.run()
            finally:
                # The end of flytekit's event loop has cancelled pending deletions. Run them now, because they
                # are not stored elsewhere.
                await parts.orders.resubmit_deletions(server_assembly.SETTLE_SECONDS)

    def _on_server_exit(self, life: "asyncio.Task[None]") -> None:
        begun, self._begun = self._begun, None
        if begun is not None and not begun.done():
            begun.set_exception(ConnectorUnavailable("the connector stopped before it had started"))
        if not life.cancelled() and (error := life.exception()) is not None:
            _LOG.error("an internal error stopped the background work of the connector", exc_info=error)


class Connector(AsyncConnectorBase):  # type: ignore[misc]
    """The connector for one version of task type `pytorch`."""

    name = connector_service.NAME

    def __init__(self, host: ServerHost, version: int) -> None:
        super().__init__(
            metadata_type=TaskReference,
            task_type_name=connector_service.TASK_TYPES[0],
            task_type_version=version,
        )
        self._host = host

    async def create(
        self, task_template: Any, output_prefix: str, task_execution_metadata: Any = None, **_: Any
    ) -> TaskReference:
        """Create the job of a task, and return the reference to the job."""
        metadata = task_execution_metadata.to_flyte_idl() if task_execution_metadata else None
        request = admin.CreateTaskRequest(
            template=task_template.to_flyte_idl(),
            output_prefix=output_prefix,
            task_execution_metadata=metadata,
        )
        tasks = await self._host.get_connector_service()
        return TaskReference((await tasks.create_task(request.SerializeToString())).resource_meta)

    async def get(self, resource_meta: TaskReference, **_: Any) -> Resource:
        """Return the phase, message and log links of the job."""
        tasks = await self._host.get_connector_service()
        request = admin.GetTaskRequest(resource_meta=resource_meta.data)
        resource = admin.GetTaskResponse.FromString(await tasks.get_task(request)).resource
        return _CompleteResource(phase=resource.phase, message=resource.message, message_=resource)

    async def delete(self, resource_meta: TaskReference, **_: Any) -> None:
        """Schedule the deletion of the job."""
        tasks = await self._host.get_connector_service()
        await tasks.delete_task(admin.DeleteTaskRequest(resource_meta=resource_meta.data))


def register_connectors(configuration: Configuration) -> None:
    """Register the connectors with flytekit's server.

    Raises:
        ConnectorUnavailable: If the cluster is embedded and `allow_unauthenticated` is not set. Each client
            that can reach the server could then run commands as this user.
    """
    is_embedded = configuration.server.settings.cluster is ClusterKind.EMBEDDED
    if is_embedded and not configuration.server.settings.allow_unauthenticated:
        raise ConnectorUnavailable(
            "pyflyte serve connector listens on all addresses without authentication, and each client of an "
            "embedded cluster can run commands as this user; use kfpytorch serve, or set "
            "KFPYTORCH_ALLOW_UNAUTHENTICATED=true if no other user can reach the port"
        )
    for key, source in configuration.server.sources.items():
        if key.startswith(_NOT_OURS):
            _LOG.warning("%s has no effect here: flytekit's server has its own setting (%s)", key, source)
    host = ServerHost(configuration)
    for version in connector_service.VERSIONS:
        ConnectorRegistry.register(Connector(host, version))


register_connectors(serve_settings.read_configuration(os.environ.get("KFPYTORCH_SETTINGS"), {}))
