"""Functions that build gRPC handlers (also for reflection), and convert a `BackendError` to a gRPC status."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
from google.protobuf.message import Message

from backend_plugin.core import foreign_jobs, job_lookup, runtimes
from backend_plugin.core.errors import BackendError, RequestRejected
from backend_plugin.shell.cluster import ClusterUnavailable

if TYPE_CHECKING:
    Handler: TypeAlias = grpc.GenericRpcHandler[Any, Any]
else:
    Handler = grpc.GenericRpcHandler

_CODES: Final[Mapping[type[BackendError], grpc.StatusCode]] = {
    job_lookup.JobNotFound: grpc.StatusCode.NOT_FOUND,
    job_lookup.AmbiguousJob: grpc.StatusCode.INVALID_ARGUMENT,
    job_lookup.RankNotFound: grpc.StatusCode.INVALID_ARGUMENT,
    foreign_jobs.ForeignJob: grpc.StatusCode.FAILED_PRECONDITION,
    runtimes.RuntimeNotFound: grpc.StatusCode.NOT_FOUND,
    runtimes.AmbiguousRuntime: grpc.StatusCode.INVALID_ARGUMENT,
    runtimes.UnsupportedRuntime: grpc.StatusCode.FAILED_PRECONDITION,
    runtimes.PackagesUnknown: grpc.StatusCode.FAILED_PRECONDITION,
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
    """Return the gRPC handler that calls `call`; if `request_type` is None, with the serialized request.

    The call may raise a `BackendError`, which `RpcMiddleware` converts to a gRPC status.
    """
    read = None if request_type is None else request_type.FromString
    return grpc.unary_unary_rpc_method_handler(lambda request, _: call(request), read, _serialize_response)


def build_stream_handler(
    call: Callable[[Any], AsyncGenerator[Message, None]], request_type: type[Message]
) -> "grpc.RpcMethodHandler[Any, Any]":
    """Return the gRPC handler that streams the responses of `call`, which may raise a `BackendError`."""
    return grpc.unary_stream_rpc_method_handler(
        lambda request, _: call(request), request_type.FromString, _serialize_response
    )


def _serialize_response(answer: Message | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


def get_status(error: BackendError) -> tuple[grpc.StatusCode, str]:
    """Return the gRPC status code and the details of a call that raised `error`."""
    if isinstance(error, CallFailed):
        return error.code, error.details
    if isinstance(error, RequestRejected) and error.code == HTTPStatus.NOT_FOUND:
        return grpc.StatusCode.NOT_FOUND, str(error)
    codes = (_CODES[each] for each in type(error).__mro__ if each in _CODES)
    return next(codes, grpc.StatusCode.INTERNAL), str(error)


def build_reflection_handler(services: Iterable[str]) -> Handler:
    """Return the gRPC reflection handler for `services`; their generated modules must be imported."""
    from grpc_reflection.v1alpha import reflection, reflection_pb2

    names = (*services, reflection.SERVICE_NAME)
    servicer = reflection.aio.ReflectionServicer(names)  # type: ignore[attr-defined]  # Missing in its stubs.
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(reflection.SERVICE_NAME, {"ServerReflectionInfo": method})
