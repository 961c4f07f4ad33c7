"""Decodes API errors to exceptions, and lists how this server treats them in each kind of request."""

import http.client
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final

import msgspec

from backend_plugin.core import rejection
from backend_plugin.core.errors import BackendError
from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.kube import protobuf_envelope
from backend_plugin.kube.decoder import MalformedResponse
from backend_plugin.kube.protobuf_envelope import decode_text
from kfpytorch_idl.kubernetes import envelope_pb2 as wire

# A proxy may respond with a long page.
_LONGEST: Final = 2_000
_NOT_AUTHORIZED: Final = re.compile(r"cannot \w{1,63} resource\b")
_SERVER_ERROR: Final = 500
_TOO_LARGE: Final = "request is too large"
"""A part of etcd's message for a too large object, which the API server returns with code 500."""
_MODIFIED: Final = "the object has been modified"
_NO_SUCH_PATH: Final = "404 page not found"
"""The whole body of the response to a request for a resource that the API server does not serve."""


class RequestOutcome(Enum):
    """How this server treats a failed create, get or delete request; the values are texts for the docs."""

    ADOPTED = "adopted if it is the job of this attempt; otherwise the task ends with `FAILED`"
    REFUSED = "the task ends with `FAILED`"
    NO_ROOM = "`RESOURCE_EXHAUSTED`"
    TEMPORARY = "`UNAVAILABLE`"
    ABSENT = "the object counts as absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorClass:
    """A class of API errors: which errors belong to it, and how this server treats them in each request."""

    answer: str
    """The description of these errors in the documentation, in Markdown."""
    matches: "Callable[[ApiError], bool]"
    create: RequestOutcome = RequestOutcome.TEMPORARY
    get: RequestOutcome = RequestOutcome.TEMPORARY
    delete: RequestOutcome = RequestOutcome.TEMPORARY
    repeated: bool = False
    """True if the request is retried with a backoff before the caller receives an error."""
    misconfigured: bool = False
    """True if requests fail until an admin changes the platform, for example adds an RBAC rule."""


class ApiError(BackendError):
    """An error response from the API server, or from a proxy before it."""

    def __init__(self, code: int, status: Manifest, retry_after: float = 0.0) -> None:
        self.code = code
        self.reason = get_text(status, "reason")
        self.message = get_text(status, "message")
        super().__init__(f"{code} {self.reason}: {self.message}")
        self.retry_after = retry_after
        self.genuine = get_text(status, "kind") == "Status"
        """True if the response comes from Kubernetes and not from a proxy or an unserved path."""
        self._details = get_mapping(status, "details")
        self.fields = frozenset(get_text(cause, "field") for cause in get_mappings(self._details, "causes"))
        """The paths of the invalid fields."""

    @property
    def is_transient(self) -> bool:
        """True if the request may succeed when it is repeated within seconds."""
        return self.error_class.repeated

    @property
    def error_class(self) -> ErrorClass:
        """The first row of `TABLE` that matches this error; it defines how the client reacts to the error."""
        return next(row for row in TABLE if row.matches(self))

    @property
    def is_not_served(self) -> bool:
        """True if the cluster does not serve the resource or its version."""
        return self.code == HTTPStatus.NOT_FOUND and (self.genuine or self.message == _NO_SUCH_PATH)

    @property
    def is_too_large(self) -> bool:
        """True if the object is larger than the cluster can store."""
        return self.code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or _TOO_LARGE in self.message

    @property
    def is_not_authorized(self) -> bool:
        """True for a 403 because of a missing RBAC rule; False for a 403 from an admission plugin."""
        if self.code != HTTPStatus.FORBIDDEN or rejection.is_denial(self.message):
            return False
        return _NOT_AUTHORIZED.search(self.message) is not None

    @property
    def is_outdated(self) -> bool:
        """True for a 409 because the object no longer has the `resourceVersion` in the request."""
        return self.code == HTTPStatus.CONFLICT and _MODIFIED in self.message

    @property
    def is_not_found(self) -> bool:
        """True if the object does not exist."""
        return self.code == HTTPStatus.NOT_FOUND and self.genuine

    def is_missing_object(self, plural: str, name: str) -> bool:
        """True for a 404 about the object `name` of the kind `plural`; False if the kind is not served."""
        found = get_text(self._details, "kind"), get_text(self._details, "name")
        return self.is_not_found and found == (plural, name)


TABLE: Final = (
    ErrorClass(
        answer="409 `AlreadyExists`",
        matches=lambda answer: answer.reason == "AlreadyExists",
        create=RequestOutcome.ADOPTED,
        delete=RequestOutcome.ABSENT,
    ),
    ErrorClass(
        answer=f"409 `Conflict`: {_MODIFIED}", matches=lambda answer: answer.is_outdated, repeated=True
    ),
    ErrorClass(
        answer="any other 409, for example because the object has another uid",
        matches=lambda answer: answer.code == HTTPStatus.CONFLICT,
        delete=RequestOutcome.ABSENT,
    ),
    ErrorClass(
        answer=f"413, or 500 with etcd's “{_TOO_LARGE}”",
        matches=lambda answer: answer.is_too_large,
        create=RequestOutcome.REFUSED,
    ),
    ErrorClass(
        answer="401, also after the credentials were read again",
        matches=lambda answer: answer.code == HTTPStatus.UNAUTHORIZED,
        repeated=True,
    ),
    ErrorClass(
        answer="408, 429, 500 and above, from Kubernetes or from a proxy",
        matches=lambda answer: (
            answer.code in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
            or answer.code >= _SERVER_ERROR
        ),
        repeated=True,
    ),
    ErrorClass(
        answer="404 with the text `404 page not found`: the cluster does not serve this kind",
        matches=lambda answer: answer.is_not_served and not answer.genuine,
        misconfigured=True,
    ),
    ErrorClass(
        answer="any other response without a Kubernetes `Status`, for example from a proxy",
        matches=lambda answer: not answer.genuine,
    ),
    ErrorClass(
        answer="an admission webhook or policy denied the request, with 400 to 499",
        matches=lambda answer: rejection.is_denial(answer.message),
        create=RequestOutcome.REFUSED,
    ),
    ErrorClass(
        answer="403: exceeded quota",
        matches=lambda answer: rejection.is_transient(answer.code, answer.message),
        create=RequestOutcome.NO_ROOM,
    ),
    ErrorClass(
        answer="403: a role or binding is missing",
        matches=lambda answer: answer.is_not_authorized,
        misconfigured=True,
    ),
    ErrorClass(
        answer="any other 403, for example because the namespace is being deleted",
        matches=lambda answer: answer.code == HTTPStatus.FORBIDDEN,
        misconfigured=True,
    ),
    ErrorClass(
        answer="404 `NotFound`: the object or its namespace does not exist",
        matches=lambda answer: answer.is_not_found,
        get=RequestOutcome.ABSENT,
        delete=RequestOutcome.ABSENT,
        misconfigured=True,
    ),
    ErrorClass(
        answer="400, 422: the object is invalid",
        matches=lambda answer: answer.code in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY),
        create=RequestOutcome.REFUSED,
    ),
    ErrorClass(answer="any other error", matches=lambda _: True),
)
"""The classes of API errors; the first one that matches an error applies to it."""


def _decode_status(body: bytes, *path: str) -> Manifest:
    """Return the Kubernetes `Status` in a body: a protobuf object, or the value at `path` in JSON.

    If the body is something else, such as the page of a proxy, its beginning becomes the status message.
    """
    try:
        if protobuf_envelope.is_wrapped(body):
            return _decode_protobuf_status(body)
        if found := get_mapping(msgspec.json.decode(body), *path):
            return found
    except (ValueError, RecursionError, MalformedResponse):
        pass
    return {"message": body[:_LONGEST].decode(errors="replace").strip()}


def _decode_protobuf_status(body: bytes) -> Manifest:
    wrapped = protobuf_envelope.decode_envelope(wire.Unknown, body, b"Status")
    status = protobuf_envelope.decode_message(wire.Status, wrapped.raw)
    details = status.details
    return {
        "kind": "Status",
        "reason": decode_text(status.reason),
        "message": decode_text(status.message),
        "code": status.code,
        "details": {
            "name": decode_text(details.name),
            "kind": decode_text(details.kind),
            "causes": [{"field": decode_text(each.field)} for each in details.causes],
            "retryAfterSeconds": details.retry_after_seconds,
        },
    }


def parse_error_response(code: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Return the error that an HTTP response with an error code describes.

    The body can also be the page of a proxy; its beginning is then the message of the error.
    """
    status = _decode_status(body)
    reason = get_text(status, "reason") or http.client.responses.get(code, "Unknown").replace(" ", "")
    seconds = get_int(status, "details", "retryAfterSeconds") or 0
    delay = headers.get("Retry-After", "")  # Kubernetes sends seconds; a date is ignored.
    retry_after = max(float(seconds), float(delay) if delay.isdecimal() else 0.0)
    return ApiError(code, {**status, "reason": reason}, retry_after)


def decode_event_error(encoded: bytes) -> ApiError:
    """Return the error of a watch event ``ERROR``: `encoded` is the JSON event, or its protobuf object."""
    status = {"reason": "Unknown", **_decode_status(encoded, "object")}
    return ApiError(get_int(status, "code") or _SERVER_ERROR, status)
