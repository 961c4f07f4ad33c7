"""gRPC handlers that convert a `BackendError` of a call to a gRPC status, and the reflection service."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from http import HTTPStatus
from importlib import import_module
from typing import Any, Final, NoReturn, TypeAlias

import grpc
from google.protobuf.message import Message

from backend_plugin.core import foreign_jobs, job_lookup, runtimes
from backend_plugin.core.errors import BackendError, RequestRejected
from backend_plugin.core.runtimes import PackagesUnknown
from backend_plugin.shell.cluster import ClusterUnavailable
from backend_plugin.shell.rpc_middleware import Handler

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

_CODES: Final[Mapping[type[BackendError], grpc.StatusCode]] = {
    job_lookup.JobNotFound: grpc.StatusCode.NOT_FOUND,
    job_lookup.AmbiguousJob: grpc.StatusCode.INVALID_ARGUMENT,
    job_lookup.RankNotFound: grpc.StatusCode.INVALID_ARGUMENT,
    foreign_jobs.ForeignJob: grpc.StatusCode.FAILED_PRECONDITION,
    runtimes.RuntimeNotFound: grpc.StatusCode.NOT_FOUND,
    runtimes.AmbiguousRuntime: grpc.StatusCode.INVALID_ARGUMENT,
    runtimes.UnsupportedRuntime: grpc.StatusCode.FAILED_PRECONDITION,
    PackagesUnknown: grpc.StatusCode.FAILED_PRECONDITION,
    RequestRejected: grpc.StatusCode.FAILED_PRECONDITION,
    ClusterUnavailable: grpc.StatusCode.UNAVAILABLE,
}


class CallFailed(BackendError):
    """The error status with which a call ends."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code, self.details = code, details


def build_unary_handler(
    call: Callable[[Any], Awaitable[Message | bytes]], request_type: type[Message] | None
) -> "grpc.RpcMethodHandler[Any, Any]":
    """Return the handler of a call; without a request type, the call receives the serialized request."""

    async def handle(request: Any, context: Context) -> Message | bytes:
        try:
            return await call(request)
        except BackendError as error:
            await _abort_call(context, error)

    read = None if request_type is None else request_type.FromString
    return grpc.unary_unary_rpc_method_handler(handle, read, _serialize_response)


def build_stream_handler(
    call: Callable[[Any], AsyncGenerator[Message, None]], request_type: type[Message]
) -> "grpc.RpcMethodHandler[Any, Any]":
    """Return the handler of a call with a stream of responses."""

    async def handle(request: Any, context: Context) -> AsyncGenerator[Message, None]:
        try:
            async with aclosing(call(request)) as responses:
                async for response in responses:
                    yield response
        except BackendError as error:
            await _abort_call(context, error)

    return grpc.unary_stream_rpc_method_handler(handle, request_type.FromString, _serialize_response)


def _serialize_response(answer: Message | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


async def _abort_call(context: Context, error: BackendError) -> NoReturn:
    codes = (_CODES[each] for each in type(error).__mro__ if each in _CODES)
    code, details = next(codes, grpc.StatusCode.INTERNAL), str(error)
    if isinstance(error, CallFailed):
        code, details = error.code, error.details
    elif isinstance(error, RequestRejected) and error.code == HTTPStatus.NOT_FOUND:
        code = grpc.StatusCode.NOT_FOUND
    await context.abort(code, details)
    raise AssertionError("abort raises")


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
