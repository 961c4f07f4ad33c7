"""Builds the errors with which the API server rejects an object: HTTP code, reason and message."""

from collections.abc import Sequence

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.pod_rules.field_errors import FieldError


def build_unprocessable_resource(kind: str, name: str, causes: Sequence[FieldError]) -> RequestRejected:
    """Return the API server's error for an object with invalid fields."""
    return RequestRejected(422, "Invalid", f'{kind} "{name}" is invalid: {_join_errors(causes)}')


def build_webhook_denial(webhook: str, causes: Sequence[FieldError]) -> RequestRejected:
    """Return the error for an object that a webhook rejects."""
    message = f'admission webhook "{webhook}" denied the request: {_join_errors(causes)}'
    return RequestRejected(403, "Forbidden", message)


def build_bad_request(detail: str) -> RequestRejected:
    """Return the error for a body that the API server cannot decode."""
    return RequestRejected(400, "BadRequest", detail)


def _join_errors(causes: Sequence[FieldError]) -> str:
    texts = list(dict.fromkeys(map(str, causes)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
