"""The errors of the API server: its codes and reasons, and the fields that caused them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.values import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """An error in one field."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def build_required_error(field: str, detail: str = "") -> FieldError:
    """Return the error for a missing or empty field."""
    return FieldError(field=field, message=f"Required value: {detail}".removesuffix(": "))


def build_invalid_error(field: str, value: JsonValue, detail: str) -> FieldError:
    """Return the error for a value that violates a rule."""
    return FieldError(field=field, message=f"Invalid value: {_format_value(value)}: {detail}")


def build_type_error(field: str, wanted: str, found: str) -> FieldError:
    """Return the error for a value of a wrong type."""
    return build_invalid_error(field, found, f"must be of type {wanted}")


def build_unsupported_error(field: str, value: JsonValue, supported: Sequence[str]) -> FieldError:
    """Return the error for a value that is not in a fixed set."""
    listed = ", ".join(_format_value(each) for each in supported)
    return FieldError(
        field=field, message=f"Unsupported value: {_format_value(value)}: supported values: {listed}"
    )


def build_forbidden_error(field: str, detail: str) -> FieldError:
    """Return the error for a field or value that is not allowed."""
    return FieldError(field=field, message=f"Forbidden: {detail}")


def build_duplicate_error(field: str, value: JsonValue) -> FieldError:
    """Return the error for a duplicate key."""
    return FieldError(field=field, message=f"Duplicate value: {_format_value(value)}")


def build_unprocessable_resource(kind: str, name: str, causes: Sequence[FieldError]) -> RequestRejected:
    """Return the API server's error for an invalid object.

    Args:
        kind: The name of the kind, with the group if there is one.
        name: The name of the object.
        causes: The errors in its fields.
    """
    return RequestRejected(422, "Invalid", f'{kind} "{name}" is invalid: {_join_errors(causes)}')


def build_webhook_denial(webhook: str, causes: Sequence[FieldError]) -> RequestRejected:
    """Return the error of a webhook."""
    message = f'admission webhook "{webhook}" denied the request: {_join_errors(causes)}'
    return RequestRejected(403, "Forbidden", message)


def build_bad_request(detail: str) -> RequestRejected:
    """Return the error for a body that the API server cannot decode."""
    return RequestRejected(400, "BadRequest", detail)


def _join_errors(causes: Sequence[FieldError]) -> str:
    texts = list(dict.fromkeys(map(str, causes)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _format_value(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
