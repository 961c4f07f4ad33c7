"""The platform settings of ``kfpytorch serve --check``, with the value and the source of each."""

import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from backend_plugin.core.quantity import Quantity
from backend_plugin.core.settings import Settings, loader

_SECTION: Final = "plugins.k8s."
"""The prefix of the keys in a file, which has the platform settings beside those of the server."""


def build_report(
    settings: Settings, section: Mapping[str, Any], file: str, default: str
) -> Mapping[str, tuple[Any, str]]:
    """Return the value and the source of each platform setting, by its key."""
    return {
        f"{_SECTION}{key}": (
            _get_value(settings, section, key),
            file if _find_value(section, key) else default,
        )
        for key in (*loader.list_keys(), *_iter_names(section))
    }


def _iter_names(section: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of the sections by project, namespace and scheduler, which override general settings."""
    for path in loader.list_named_sections():
        for name, inner in (_find_value(section, path) or {}).items():
            for key in inner if isinstance(inner, Mapping) else ():
                yield f"{path}.{name}.{key}"


def _find_value(section: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key in the file, or None."""
    parts: Sequence[str] = key.split(".")
    found: Any = section
    while parts and isinstance(found, Mapping):
        # The name of a section may contain dots.
        size = next((n for n in range(1, len(parts) + 1) if ".".join(parts[:n]) in found), None)
        if size is None:
            return None
        found, parts = found[".".join(parts[:size])], parts[size:]
    return None if parts or found in (None, {}, []) else found


def _get_value(settings: Settings, section: Mapping[str, Any], key: str) -> Any:
    field = loader.get_field(key)
    found: Any = settings
    for part in field.split("."):
        found = getattr(found, part, None)
    return encode_value(_find_value(section, key) if found is None else found)


def _format_value(value: Quantity | timedelta | enum.Enum) -> str:
    if isinstance(value, Quantity):
        return value.text
    return str(value.value) if isinstance(value, enum.Enum) else f"{value.total_seconds():g}s"


def encode_value(value: Any) -> Any:
    """Return the value of a setting as JSON."""
    if isinstance(value, Quantity | timedelta | enum.Enum):
        return _format_value(value)
    if isinstance(value, Mapping):
        return {str(encode_value(key)): encode_value(each) for key, each in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return {name.replace("_", "-"): encode_value(each) for name, each in fields.items()}
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        return msgspec.to_builtins(value, enc_hook=str)
    return [encode_value(each) for each in value]
