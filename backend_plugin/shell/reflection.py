"""The gRPC reflection service."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import grpc

from backend_plugin.shell.rpc_middleware import Handler


class Reflection(Handler):
    """The gRPC reflection service, imported on its first call."""

    def __init__(self, services: Mapping[str, str]) -> None:
        self._services = services
        self._loaded: Any = None

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a method, as grpc requires; None if this is not a reflection method."""
        if not handler_call_details.method.startswith("/grpc.reflection.v1alpha."):
            return None
        if self._loaded is None:
            self._loaded = self._load_services()
        return self._loaded.service(handler_call_details)

    def _load_services(self) -> Any:
        from grpc_reflection.v1alpha import reflection, reflection_pb2

        for module in self._services.values():
            import_module(module)
        services = (*self._services, reflection.SERVICE_NAME)
        servicer = reflection.aio.ReflectionServicer(services)  # type: ignore[attr-defined]
        return grpc.method_handlers_generic_handler(
            reflection.SERVICE_NAME,
            {
                "ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(
                    servicer.ServerReflectionInfo,
                    reflection_pb2.ServerReflectionRequest.FromString,
                    reflection_pb2.ServerReflectionResponse.SerializeToString,
                )
            },
        )
