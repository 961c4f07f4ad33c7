"""The errors of the API server: codes, reasons and the format of messages."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.values import JsonValue

_MORE: Final = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid;"
    " correct the existing errors to complete validation"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """An error in one field."""

    field: str
    said: str
    """The message after the field name."""
    is_blocking: bool = False
    """True if the API server skips CEL rules because of this error."""

    def __str__(self) -> str:
        return f"{self.field}: {self.said}"


def build_required_error(field: str, detail: str = "") -> FieldError:
    """Return the error for a missing or empty field."""
    return FieldError(field=field, said=f"Required value{_format_detail(detail)}", is_blocking=True)


def build_invalid_error(field: str, value: JsonValue, detail: str) -> FieldError:
    """Return the error for a value that violates a rule."""
    return FieldError(field=field, said=f"Invalid value: {_format_value(value)}{_format_detail(detail)}")


def build_type_error(field: str, wanted: str, found: str) -> FieldError:
    """Return the error for a value of a wrong type."""
    detail = f'{field} in body must be of type {wanted}: "{found}"'
    return FieldError(field=field, said=f'Invalid value: "{found}": {detail}', is_blocking=True)


def build_unsupported_error(field: str, value: JsonValue, supported: Sequence[str]) -> FieldError:
    """Return the error for a value that is not in a fixed set."""
    listed = ", ".join(_format_value(each) for each in supported)
    said = f"Unsupported value: {_format_value(value)}: supported values: {listed}"
    return FieldError(field=field, said=said, is_blocking=True)


def build_forbidden_error(field: str, detail: str) -> FieldError:
    """Return the error for a field or value that is not allowed."""
    return FieldError(field=field, said=f"Forbidden{_format_detail(detail)}")


def build_duplicate_error(field: str, value: JsonValue) -> FieldError:
    """Return the error for a duplicate key."""
    return FieldError(field=field, said=f"Duplicate value: {_format_value(value)}")


def build_not_found_error(field: str, value: JsonValue) -> FieldError:
    """Return the error for a reference to a missing object."""
    return FieldError(field=field, said=f"Not found: {_format_value(value)}")


def build_too_long_error(field: str, most: int) -> FieldError:
    """Return the error for a value that exceeds a size limit."""
    return FieldError(field=field, said=f"Too long: may not be more than {most} bytes", is_blocking=True)


def build_unprocessable(kind: str, name: str, causes: Sequence[FieldError]) -> RequestRejected:
    """Return the API server's error for an invalid object.

    Args:
        kind: The name of the kind, with the group if there is one.
        name: The name of the object.
        causes: The errors in its fields.
    """
    return RequestRejected(422, "Invalid", f'{kind} "{name}" is invalid: {_join_errors(map(str, causes))}')


def build_unprocessable_resource(kind: str, name: str, causes: Sequence[FieldError]) -> RequestRejected:
    """Return the same error for a custom resource. It mentions that some rules were not checked."""
    said = [str(cause) for cause in causes]
    if any(cause.is_blocking for cause in causes):
        said.append(_MORE)
    return RequestRejected(422, "Invalid", f'{kind} "{name}" is invalid: {_join_errors(said)}')


def build_webhook_denial(webhook: str, causes: Sequence[FieldError]) -> RequestRejected:
    """Return the error of a webhook."""
    said = _join_errors(map(str, causes))
    return RequestRejected(403, "Forbidden", f'admission webhook "{webhook}" denied the request: {said}')


def build_bad_request(detail: str) -> RequestRejected:
    """Return the error for a body that the API server cannot decode."""
    return RequestRejected(400, "BadRequest", detail)


def _join_errors(causes: Iterable[str]) -> str:
    said = list(dict.fromkeys(causes))
    return said[0] if len(said) == 1 else f"[{', '.join(said)}]"


def _format_value(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _format_detail(detail: str) -> str:
    return f": {detail}" if detail else ""
