"""What the API server says when it does not say yes.

Lives here: a `Status` as an exception, and whether asking again may help. Does not: what that means for
the object that was asked for.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from backend_plugin.core.errors import BackendError
from backend_plugin.kube import envelope
from backend_plugin.kube.envelope import text
from backend_plugin.kube.parsed import Malformed
from kfpytorch_idl.kubernetes import envelope_pb2 as wire

# A proxy in between may answer with a page.
_LONGEST: Final = 2_000
_NOT_AUTHORIZED: Final = re.compile(r"\bcannot \w+ resource\b")
_PASSING: Final = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
)
_SERVER_ERROR: Final = 500
_TOO_LARGE: Final = "request is too large"
"""In what etcd says, which comes as a 500."""
_NO_SUCH_PATH: Final = "404 page not found"
"""The whole answer of an API server that does not have a resource."""
_MODIFIED: Final = "the object has been modified"


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One of several things that are wrong."""

    reason: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """Of a `Status`."""

    name: str = ""
    kind: str = ""
    """The plural, mostly."""
    causes: tuple[Cause, ...] | None = None
    retryAfterSeconds: int = 0  # noqa: N815 - as it is on the wire.


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """``v1.Status``, as far as it is read."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: Details | None = None


class Answered(BackendError):
    """The API server, or somebody before it, has answered, and not as hoped."""

    def __init__(self, code: int, status: Status, retry_after: float = 0.0) -> None:
        super().__init__(f"{code} {status.reason}: {status.message}")
        self.code = code
        self.reason = status.reason
        self.message = status.message
        self.retry_after = retry_after
        self.genuine = status.kind == "Status"
        """Kubernetes itself says so, and not a proxy, or a path that nobody serves."""
        self._details = status.details
        causes = status.details.causes if status.details is not None else None
        self.fields = frozenset(cause.field for cause in causes or ())
        """What is wrong with the object, as paths."""

    @property
    def is_passing(self) -> bool:
        """Whether the same question may be answered later."""
        if self.code == HTTPStatus.CONFLICT:
            # Somebody wrote at the same time, as to the use of a quota. A uid that is another's stays so.
            return _MODIFIED in self.message
        if self.is_too_large:
            return False
        return self.code in _PASSING or self.code >= _SERVER_ERROR

    @property
    def is_not_served(self) -> bool:
        """Whether the cluster has no such resource, or version of it."""
        return self.code == HTTPStatus.NOT_FOUND and (self.genuine or self.message == _NO_SUCH_PATH)

    @property
    def is_too_large(self) -> bool:
        """Whether the object is larger than the cluster can store."""
        return self.code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or _TOO_LARGE in self.message

    @property
    def is_not_authorized(self) -> bool:
        """Whether a role lacks a rule; admission refuses with the same code."""
        return self.code == HTTPStatus.FORBIDDEN and _NOT_AUTHORIZED.search(self.message) is not None

    @property
    def is_not_found(self) -> bool:
        """Whether there certainly is no such object."""
        return self.code == HTTPStatus.NOT_FOUND and self.genuine

    def is_of(self, plural: str, name: str) -> bool:
        """Whether the API server has this kind, and says of the object itself that there is none."""
        about = self._details
        return self.is_not_found and about is not None and (about.kind, about.name) == (plural, name)


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    object: Status


_status: Final = msgspec.json.Decoder(Status)
_error: Final = msgspec.json.Decoder(_Error)


def read(code: int, headers: Mapping[str, str], body: bytes) -> Answered:
    """The answer that came with a code other than a success."""
    try:
        status = _of_message(body) if envelope.is_wrapped(body) else _status.decode(body)
    except (msgspec.MsgspecError, Malformed):
        status = Status(message=body[:_LONGEST].decode(errors="replace").strip())
    if not status.reason:
        status = msgspec.structs.replace(status, reason=_phrase(code))
    said = status.details.retryAfterSeconds if status.details is not None else 0
    return Answered(code, status, max(float(said), _seconds(headers.get("Retry-After", ""))))


def of_event(line: bytes) -> Answered:
    """The answer in an ``ERROR`` event of a watch."""
    try:
        return _in_event(_error.decode(line).object)
    except msgspec.MsgspecError:
        return _in_event(_unknown(line))


def of_wrapped(body: bytes) -> Answered:
    """The answer in such an event that came as protobuf."""
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
    # A date is possible, too; Kubernetes sends seconds.
    return float(said) if said.isdecimal() else 0.0
