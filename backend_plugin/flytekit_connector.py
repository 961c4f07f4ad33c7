"""The same server behind flytekit's: ``pyflyte serve connector --modules backend_plugin.flytekit_connector``.

For who has a stock connector image. Importing it registers task type `pytorch`, versions 0 and 1. What that
server has of its own, its port, health, metrics and end, is flytekit's; so is what it loses on the way: some
fields of templates, the codes of errors, GetTaskLogs. `kfpytorch serve` has and keeps all of it.
"""

import asyncio
import logging
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar, cast

import grpc
from flyteidl.admin import agent_pb2 as admin
from flytekit.extend.backend.base_connector import (
    AsyncConnectorBase,
    ConnectorRegistry,
    Resource,
    ResourceMeta,
)

from backend_plugin.cli import clusters, serve_settings, serving
from backend_plugin.cli.serve_settings import Configuration
from backend_plugin.core.errors import BackendError
from backend_plugin.shell import service
from backend_plugin.shell.settings import ClusterKind

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)
# Of flytekit's server: what these say here means nothing there.
_NOT_OURS: Final = (
    "host",
    "port",
    "tls.",
    "token-file",
    "receive-limit",
    "send-limit",
    "concurrency",
    "drain",
    "metrics.",
    "log.",
)


class NotHere(BackendError):
    """What this server does must not be done behind flytekit's."""


class _Aborted(Exception):
    """A call ends with an error; flytekit tells the caller INTERNAL, and this text."""


class _Context:
    """What a call of `TaskService` asks of its caller, behind flytekit: nothing but to be ended."""

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        """End the call."""
        raise _Aborted(f"{code.name}: {details}")


_CONTEXT: Final = cast("service.Context", _Context())


@dataclass
class Reference(ResourceMeta):  # type: ignore[misc]  # flytekit has no types.
    """What the server hands to Flyte for a task, as it is."""

    data: bytes

    def encode(self) -> bytes:
        """Itself."""
        return self.data

    @classmethod
    def decode(cls, data: bytes) -> "Reference":
        """Whatever Flyte hands back."""
        return cls(data)


@dataclass
class _Answered(Resource):  # type: ignore[misc]
    """A phase as the server says it, with all that flytekit's own kind has no field for."""

    message_: admin.Resource | None = None

    async def to_flyte_idl(self) -> admin.Resource:
        """Itself."""
        return self.message_


class Host:
    """The server's parts in the event loop of another server, from the first call to that loop's end."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._begun: asyncio.Future[service.TaskService] | None = None
        self._life: asyncio.Task[None] | None = None

    async def tasks(self) -> service.TaskService:
        """What answers; the first call begins it, and so does the next one after it has failed."""
        if self._begun is None:
            self._begun = asyncio.get_running_loop().create_future()
            self._life = asyncio.ensure_future(self._live(self._begun))
            self._life.add_done_callback(self._ended)
        return await asyncio.shield(self._begun)

    async def _live(self, begun: "asyncio.Future[service.TaskService]") -> None:
        async with AsyncExitStack() as stack:
            try:
                here = await clusters.opened(stack, self._configuration)
            except BackendError as error:
                begun.set_exception(error)
                return
            parts = serving.assembled(here, self._configuration.server.settings)
            begun.set_result(parts.tasks)
            try:
                await parts.run()
            finally:
                # That server's loop has cancelled them: nobody else knows what was to be deleted.
                await parts.orders.finish("delete", serving.SETTLE_SECONDS)

    def _ended(self, life: "asyncio.Task[None]") -> None:
        begun, self._begun = self._begun, None
        if begun is not None and not begun.done():
            begun.set_exception(NotHere("what goes on behind the calls has ended before it began"))
        if not life.cancelled() and (error := life.exception()) is not None:
            _LOG.error("a defect of ours ended what goes on behind the calls", exc_info=error)


class Connector(AsyncConnectorBase):  # type: ignore[misc]
    """Task type `pytorch` in one of its versions."""

    name = service.NAME

    def __init__(self, host: Host, version: int) -> None:
        super().__init__(
            metadata_type=Reference, task_type_name=service.TASK_TYPES[0], task_type_version=version
        )
        self._host = host

    async def create(
        self,
        task_template: Any,
        output_prefix: str,
        task_execution_metadata: Any = None,
        **_: Any,
    ) -> Reference:
        """Ask the cluster for the job."""
        metadata = task_execution_metadata.to_flyte_idl() if task_execution_metadata else None
        request = admin.CreateTaskRequest(
            template=task_template.to_flyte_idl(),
            output_prefix=output_prefix,
            task_execution_metadata=metadata,
        )
        tasks = await self._host.tasks()
        return Reference((await tasks.create_task(request.SerializeToString(), _CONTEXT)).resource_meta)

    async def get(self, resource_meta: Reference, **_: Any) -> Resource:
        """What is to be believed of the job."""
        tasks = await self._host.tasks()
        request = admin.GetTaskRequest(resource_meta=resource_meta.data)
        said = admin.GetTaskResponse.FromString(await tasks.get_task(request, _CONTEXT)).resource
        return _Answered(phase=said.phase, message=said.message, message_=said)

    async def delete(self, resource_meta: Reference, **_: Any) -> None:
        """Take the order to delete the job."""
        tasks = await self._host.tasks()
        await tasks.delete_task(admin.DeleteTaskRequest(resource_meta=resource_meta.data), _CONTEXT)

    async def get_metrics(self, resource_meta: Reference, **_: Any) -> admin.GetTaskMetricsResponse:
        """The job's own numbers."""
        tasks = await self._host.tasks()
        request = admin.GetTaskMetricsRequest(resource_meta=resource_meta.data)
        return await tasks.get_task_metrics(request, _CONTEXT)


def register(configuration: Configuration) -> None:
    """From now on flytekit's server answers for these tasks.

    Raises:
        NotHere: If everybody who reaches that server would run commands as this user, and nobody has said
            that this is meant.
    """
    is_embedded = configuration.server.settings.cluster is ClusterKind.EMBEDDED
    if is_embedded and not configuration.server.settings.open_to_all:
        raise NotHere(
            "pyflyte serve connector listens at all addresses and asks nobody who they are, and whoever "
            "calls an embedded cluster runs commands as this user; use kfpytorch serve, or set "
            "KFPYTORCH_OPEN_TO_ALL=true where nobody else can reach the port"
        )
    for key, source in configuration.server.sources.items():
        if key.startswith(_NOT_OURS):
            _LOG.warning("%s says nothing here: flytekit's server has its own (%s)", key, source)
    host = Host(configuration)
    for version in service.VERSIONS:
        ConnectorRegistry.register(Connector(host, version))


register(serve_settings.read(os.environ.get("KFPYTORCH_SETTINGS"), {}))
