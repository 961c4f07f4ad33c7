"""API errors as exceptions, and the table that determines their treatment.

Requests are retried and errors are chosen by this table.
`docs/explanation/kubernetes-api-use.md` contains it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final

import msgspec

from backend_plugin.core import refusal
from backend_plugin.core.errors import BackendError
from backend_plugin.kube import envelope
from backend_plugin.kube.envelope import text
from backend_plugin.kube.parsed import Malformed
from kfpytorch_idl.kubernetes import envelope_pb2 as wire

# A proxy may respond with a long page.
_LONGEST: Final = 2_000
_NOT_AUTHORIZED: Final = re.compile(r"cannot \w{1,63} resource\b")
_SERVER_ERROR: Final = 500
_TOO_LARGE: Final = "request is too large"
"""The message of etcd, which arrives with code 500."""
_MODIFIED: Final = "the object has been modified"
_NO_SUCH_PATH: Final = "404 page not found"
"""The whole body of a response for a resource that the API server does not serve."""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A cause in a `Status`."""

    reason: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """The details of a `Status`."""

    name: str = ""
    kind: str = ""
    """Usually the plural."""
    causes: tuple[Cause, ...] | None = None
    retryAfterSeconds: int = 0  # noqa: N815 - the name in JSON.


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of ``v1.Status`` that are read."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: Details | None = None


class Outcome(Enum):
    """The consequence of an API error for one kind of request."""

    ADOPTED = "adopted if it is the job of this attempt, else refused"
    REFUSED = "refused for good: `FAILED`"
    NO_ROOM = "`RESOURCE_EXHAUSTED`"
    TEMPORARY = "`UNAVAILABLE`"
    ABSENT = "there is none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A class of API errors, and its consequences."""

    answer: str
    """The description in the documentation, in Markdown."""
    matches: "Callable[[Answered], bool]"
    create: Outcome = Outcome.TEMPORARY
    get: Outcome = Outcome.TEMPORARY
    delete: Outcome = Outcome.TEMPORARY
    repeated: bool = False
    """True if the request is retried with a backoff before the caller receives an error."""
    misconfigured: bool = False
    """True if an admin has to change the platform; a retry within seconds does not help."""


class Answered(BackendError):
    """An error response from the API server, or from a proxy before it."""

    def __init__(self, code: int, status: Status, retry_after: float = 0.0) -> None:
        super().__init__(f"{code} {status.reason}: {status.message}")
        self.code = code
        self.reason = status.reason
        self.message = status.message
        self.retry_after = retry_after
        self.genuine = status.kind == "Status"
        """True if the response comes from Kubernetes and not from a proxy or an unserved path."""
        self._details = status.details
        causes = status.details.causes if status.details is not None else None
        self.fields = frozenset(cause.field for cause in causes or ())
        """The paths of the invalid fields."""

    @property
    def is_passing(self) -> bool:
        """True if the same request may succeed within seconds."""
        return self.row.repeated

    @property
    def row(self) -> Row:
        """Return the row of the table that applies."""
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
        """True if a role lacks a rule. Admission also uses code 403, and its message may quote any text."""
        if self.code != HTTPStatus.FORBIDDEN or refusal.is_denial(self.message):
            return False
        return _NOT_AUTHORIZED.search(self.message) is not None

    @property
    def is_outdated(self) -> bool:
        """True if the object has another version than the request."""
        return self.code == HTTPStatus.CONFLICT and _MODIFIED in self.message

    @property
    def is_not_found(self) -> bool:
        """True if the object does not exist."""
        return self.code == HTTPStatus.NOT_FOUND and self.genuine

    def is_of(self, plural: str, name: str) -> bool:
        """True if the API server serves the kind and reports that this object does not exist."""
        about = self._details
        return self.is_not_found and about is not None and (about.kind, about.name) == (plural, name)


TABLE: Final = (
    Row(
        answer="409 `AlreadyExists`",
        matches=lambda answer: answer.reason == "AlreadyExists",
        create=Outcome.ADOPTED,
        delete=Outcome.ABSENT,
    ),
    Row(
        answer=f"409 `Conflict`: {_MODIFIED}",
        matches=lambda answer: answer.is_outdated,
        repeated=True,
    ),
    Row(
        answer="409 otherwise, as for the uid of another object",
        matches=lambda answer: answer.code == HTTPStatus.CONFLICT,
        delete=Outcome.ABSENT,
    ),
    Row(
        answer=f"413, or 500 with etcd's “{_TOO_LARGE}”",
        matches=lambda answer: answer.is_too_large,
        create=Outcome.REFUSED,
    ),
    Row(
        answer="401, also after the credentials were read again",
        matches=lambda answer: answer.code == HTTPStatus.UNAUTHORIZED,
        repeated=True,
    ),
    Row(
        answer="408, 429, 500 and above, from Kubernetes or from a proxy",
        matches=lambda answer: (
            answer.code in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
            or answer.code >= _SERVER_ERROR
        ),
        repeated=True,
    ),
    Row(
        answer="404 `404 page not found`: the cluster does not serve this kind",
        matches=lambda answer: answer.is_not_served and not answer.genuine,
        misconfigured=True,
    ),
    Row(
        answer="any other answer without a Kubernetes `Status`: a proxy, a login page",
        matches=lambda answer: not answer.genuine,
    ),
    Row(
        answer="an admission webhook or policy denied the request, with 400 to 499",
        matches=lambda answer: refusal.is_denial(answer.message),
        create=Outcome.REFUSED,
    ),
    Row(
        answer="403: exceeded quota",
        matches=lambda answer: refusal.may_pass(answer.code, answer.message),
        create=Outcome.NO_ROOM,
    ),
    Row(
        answer="403: a role or binding is missing",
        matches=lambda answer: answer.is_not_authorized,
        misconfigured=True,
    ),
    Row(
        answer="403 otherwise, as in a namespace that is being deleted",
        matches=lambda answer: answer.code == HTTPStatus.FORBIDDEN,
        misconfigured=True,
    ),
    Row(
        answer="404 `NotFound`: the object, or its namespace, is not there",
        matches=lambda answer: answer.is_not_found,
        get=Outcome.ABSENT,
        delete=Outcome.ABSENT,
        misconfigured=True,
    ),
    Row(
        answer="400, 422: the object is invalid",
        matches=lambda answer: answer.code in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY),
        create=Outcome.REFUSED,
    ),
    Row(answer="any other", matches=lambda _: True),
)
"""The first row that matches applies."""


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    object: Status


_status: Final = msgspec.json.Decoder(Status)
_error: Final = msgspec.json.Decoder(_Error)


def read(code: int, headers: Mapping[str, str], body: bytes) -> Answered:
    """Parse an error response."""
    try:
        status = _of_message(body) if envelope.is_wrapped(body) else _status.decode(body)
    except (msgspec.MsgspecError, Malformed):
        status = Status(message=body[:_LONGEST].decode(errors="replace").strip())
    if not status.reason:
        status = msgspec.structs.replace(status, reason=_phrase(code))
    said = status.details.retryAfterSeconds if status.details is not None else 0
    return Answered(code, status, max(float(said), _seconds(headers.get("Retry-After", ""))))


def of_event(line: bytes) -> Answered:
    """Parse the ``ERROR`` event of a watch in JSON."""
    try:
        return _in_event(_error.decode(line).object)
    except msgspec.MsgspecError:
        return _in_event(_unknown(line))


def of_wrapped(body: bytes) -> Answered:
    """Parse the ``ERROR`` event of a watch in protobuf."""
    try:
        return _in_event(_of_message(body))
    except Malformed:
        return _in_event(_unknown(body))


def _in_event(status: Status) -> Answered:
    return Answered(status.code or _SERVER_ERROR, status)


def _unknown(said: bytes) -> Status:
    return Status(reason="Unknown", message=said[:_LONGEST].decode(errors="replace"))


def _of_message(body: bytes) -> Status:
    said = envelope.message(wire.Status, envelope.unwrapped(body, b"Status"))
    about = said.details
    return Status(
        kind="Status",
        reason=text(said.reason),
        message=text(said.message),
        code=said.code,
        details=Details(
            name=text(about.name),
            kind=text(about.kind),
            causes=tuple(Cause(reason=text(each.reason), field=text(each.field)) for each in about.causes),
            retryAfterSeconds=about.retry_after_seconds,
        ),
    )


def _phrase(code: int) -> str:
    try:
        return HTTPStatus(code).phrase.replace(" ", "")
    except ValueError:
        return "Unknown"


def _seconds(said: str) -> float:
    # Kubernetes sends seconds; a date is ignored.
    return float(said) if said.isdecimal() else 0.0
