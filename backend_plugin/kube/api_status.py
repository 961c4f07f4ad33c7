"""The Kubernetes `Status` in an error response, in JSON or protobuf."""

import msgspec

from backend_plugin.kube import protobuf_envelope
from backend_plugin.kube.protobuf_envelope import decode_text
from kfpytorch_idl.kubernetes import envelope_pb2 as wire


class StatusCause(msgspec.Struct, frozen=True, kw_only=True):
    """A cause in the details of a Kubernetes `Status`."""

    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The details of a Kubernetes `Status`."""

    name: str = ""
    kind: str = ""
    """The kind of the object; the API server usually sets its plural name, such as ``pods``."""
    causes: tuple[StatusCause, ...] | None = None
    retryAfterSeconds: int = 0  # noqa: N815 - the name in JSON.


class ApiStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of ``v1.Status`` that the server uses."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: StatusDetails | None = None


def decode_status(body: bytes) -> ApiStatus:
    """Decode a status in protobuf.

    Raises:
        MalformedResponse: If the body is not a status.
    """
    wrapped = protobuf_envelope.decode_envelope(wire.Unknown, body, b"Status")
    status = protobuf_envelope.decode_message(wire.Status, wrapped.raw)
    details = status.details
    return ApiStatus(
        kind="Status",
        reason=decode_text(status.reason),
        message=decode_text(status.message),
        code=status.code,
        details=StatusDetails(
            name=decode_text(details.name),
            kind=decode_text(details.kind),
            causes=tuple(StatusCause(field=decode_text(each.field)) for each in details.causes),
            retryAfterSeconds=details.retry_after_seconds,
        ),
    )
