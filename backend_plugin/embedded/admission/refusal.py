"""The errors of the API server: codes, reasons and the format of messages."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.errors import Refused
from backend_plugin.core.values import JsonValue

_MORE: Final = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid;"
    " correct the existing errors to complete validation"
)
WEBHOOK: Final = "validator.pytorchjob.training-operator.kubeflow.org"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """An error in one field."""

    field: str
    said: str
    """The message after the field name."""
    is_blocking: bool = False
    """True if the API server skips CEL rules because of this error."""

    def __str__(self) -> str:
        return f"{self.field}: {self.said}"


def required(field: str, detail: str = "") -> Cause:
    """Return the error for a missing or empty field."""
    return Cause(field=field, said=f"Required value{_behind(detail)}", is_blocking=True)


def invalid(field: str, value: JsonValue, detail: str) -> Cause:
    """Return the error for a value that violates a rule."""
    return Cause(field=field, said=f"Invalid value: {_shown(value)}{_behind(detail)}")


def wrong_type(field: str, wanted: str, found: str) -> Cause:
    """Return the error for a value of a wrong type."""
    detail = f'{field} in body must be of type {wanted}: "{found}"'
    return Cause(field=field, said=f'Invalid value: "{found}": {detail}', is_blocking=True)


def unsupported(field: str, value: JsonValue, supported: Sequence[str]) -> Cause:
    """Return the error for a value that is not in a fixed set."""
    listed = ", ".join(_shown(each) for each in supported)
    said = f"Unsupported value: {_shown(value)}: supported values: {listed}"
    return Cause(field=field, said=said, is_blocking=True)


def forbidden(field: str, detail: str) -> Cause:
    """Return the error for a field or value that is not allowed."""
    return Cause(field=field, said=f"Forbidden{_behind(detail)}")


def duplicate(field: str, value: JsonValue) -> Cause:
    """Return the error for a duplicate key."""
    return Cause(field=field, said=f"Duplicate value: {_shown(value)}")


def not_found(field: str, value: JsonValue) -> Cause:
    """Return the error for a reference to a missing object."""
    return Cause(field=field, said=f"Not found: {_shown(value)}")


def too_long(field: str, most: int) -> Cause:
    """Return the error for a value that exceeds a size limit."""
    return Cause(field=field, said=f"Too long: may not be more than {most} bytes", is_blocking=True)


def unprocessable(kind: str, name: str, causes: Sequence[Cause]) -> Refused:
    """Return the API server's error for an invalid object.

    Args:
        kind: The name of the kind, with the group if there is one.
        name: The name of the object.
        causes: The errors in its fields.
    """
    return Refused(422, "Invalid", f'{kind} "{name}" is invalid: {_joined(map(str, causes))}')


def unprocessable_resource(kind: str, name: str, causes: Sequence[Cause]) -> Refused:
    """Return the same error for a custom resource. It mentions that some rules were not checked."""
    said = [str(cause) for cause in causes]
    if any(cause.is_blocking for cause in causes):
        said.append(_MORE)
    return Refused(422, "Invalid", f'{kind} "{name}" is invalid: {_joined(said)}')


def denied(causes: Sequence[Cause]) -> Refused:
    """Return the error of the operator's webhook."""
    said = _joined(map(str, causes))
    return Refused(403, "Forbidden", f'admission webhook "{WEBHOOK}" denied the request: {said}')


def not_understood(detail: str) -> Refused:
    """Return the error for a body that the API server cannot decode."""
    return Refused(400, "BadRequest", detail)


def _joined(causes: Iterable[str]) -> str:
    said = list(dict.fromkeys(causes))
    return said[0] if len(said) == 1 else f"[{', '.join(said)}]"


def _shown(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _behind(detail: str) -> str:
    return f": {detail}" if detail else ""
