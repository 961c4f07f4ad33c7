"""The effective values of all settings as JSON, with their sources."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from backend_plugin.cli.serve_settings import Configuration
from backend_plugin.core.quantity import Quantity
from backend_plugin.core.settings import Settings, loader
from backend_plugin.shell.settings import ServerSettings
from backend_plugin.shell.settings.loader import KEYS

_DEFAULT: Final = "default"
_SECTIONS: Final = ("tls", "embedded", "kubernetes")
_PLATFORM: Final = "plugins.k8s."
"""The prefix of the keys of platform settings; keys of the server have none."""


def list_values(configuration: Configuration, file: str) -> Mapping[str, tuple[Any, str]]:
    """Return the value and the source of each setting of the server and of the platform, by its key."""
    server, section = configuration.server, configuration.section
    values = {key: (get_value(server.settings, key), server.sources.get(key, _DEFAULT)) for key in KEYS}
    for key in (*loader.list_keys(), *_iter_named_keys(section)):
        source = file if _find_value(section, key) else _DEFAULT
        values[_PLATFORM + key] = (_get_platform_value(configuration.platform, section, key), source)
    return values


def get_value(settings: ServerSettings, key: str) -> Any:
    """Return the value of a key as JSON, or None if it is not set."""
    part, _, rest = key.replace("-", "_").partition(".")
    found = getattr(getattr(settings, part), rest, None) if part in _SECTIONS else None
    if found is None and part not in _SECTIONS:
        found = getattr(settings, f"{part}_{rest}" if rest else part)
    return _encode_value(found)


def _iter_named_keys(section: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of the sections by project, namespace and scheduler, which override general settings."""
    for path in loader.list_named_sections():
        for name, inner in (_find_value(section, path) or {}).items():
            for key in inner if isinstance(inner, Mapping) else ():
                yield f"{path}.{name}.{key}"


def _find_value(section: Mapping[str, Any], key: str) -> Any:
    parts: Sequence[str] = key.split(".")
    found: Any = section
    while parts and isinstance(found, Mapping):
        # The name of a section may contain dots.
        size = next((n for n in range(1, len(parts) + 1) if ".".join(parts[:n]) in found), None)
        if size is None:
            return None
        found, parts = found[".".join(parts[:size])], parts[size:]
    return None if parts or found in (None, {}, []) else found


def _get_platform_value(settings: Settings, section: Mapping[str, Any], key: str) -> Any:
    field = loader.get_field(key)
    found: Any = settings
    for part in field.split("."):
        found = getattr(found, part, None)
    return _encode_value(_find_value(section, key) if found is None else found)


def _encode_value(value: Any) -> Any:
    """Return the value of a setting as JSON."""
    match value:
        case Quantity():
            return value.text
        case timedelta():
            return f"{value.total_seconds():g}s"
        case Mapping():
            return {str(_encode_value(key)): _encode_value(each) for key, each in value.items()}
        case list() | tuple():
            return [_encode_value(each) for each in value]
        case _ if dataclasses.is_dataclass(value):
            names = [each.name for each in dataclasses.fields(value)]
            return {name.replace("_", "-"): _encode_value(getattr(value, name)) for name in names}
        case _:
            return msgspec.to_builtins(value, enc_hook=str)
