"""Builds the error with which the API server rejects an object: HTTP code, reason and message."""

from collections.abc import Sequence

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.pod_rules.field_errors import FieldError
from backend_plugin.core.reading import get_text
from backend_plugin.core.values import Manifest


def build_unprocessable_resource(manifest: Manifest, causes: Sequence[FieldError]) -> RequestRejected:
    """Return the API server's error for an object with invalid fields."""
    group, slash, _ = get_text(manifest, "apiVersion").partition("/")
    kind = f"{manifest['kind']}.{group}" if slash else manifest["kind"]
    name = get_text(manifest, "metadata", "name")
    texts = list(dict.fromkeys(map(str, causes)))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return RequestRejected(422, "Invalid", f'{kind} "{name}" is invalid: {text}')
