"""Parsers of values that have the same form in YAML, environment variables and flags.

They raise `InvalidSettingValue` for an invalid value.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from backend_plugin.core.schema_check import parse_amount
from backend_plugin.core.settings.engine import InvalidSettingValue, Parser
from kfpytorch_common.quantity import InvalidQuantity, Quantity

_DURATION: Final = re.compile(r"(?<![0-9.])([0-9]{1,99}(?:\.[0-9]{1,99})?)(ms|us|s|m|h)")
_UNITS: Final = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
}
_MOST: Final = 1_000_000
_TRUTH: Final = {"true": True, "false": False}
_SMALLEST_MESSAGE: Final = 64 * 2**10
# gRPC stores the length of a message in a signed 32-bit integer.
_LARGEST_MESSAGE: Final = 2**31 - 1


def text(value: Any) -> str:
    """Return a string, number or boolean as text: YAML decodes some texts as numbers or booleans."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    raise InvalidSettingValue("is not text", "write one value, in quotes")


def boolean(value: Any) -> bool:
    """Parse a boolean, which may be a text such as ``true``."""
    name = text(value).lower()
    if name not in _TRUTH:
        raise InvalidSettingValue("is neither true nor false", "write true or false")
    return _TRUTH[name]


def build_count_parser(least: int, most: int = _MOST) -> Parser:
    """Return a parser for a whole number from `least` to `most`; it rejects other values."""

    def read(value: Any) -> int:
        digits = text(value)
        if not digits.isascii() or not digits.isdigit() or not least <= int(digits[:20]) <= most:
            raise InvalidSettingValue(
                "is not a number in the valid range", f"write a whole number from {least} to {most}"
            )
        return int(digits)

    return read


def build_choice_parser(*words: str) -> Parser:
    """Return a parser that accepts one of `words`, in any case, and returns it in lower case."""

    def read(value: Any) -> str:
        word = text(value).lower()
        if word not in words:
            raise InvalidSettingValue("is not a valid value", f"write {' or '.join(words)}")
        return word

    return read


def names(value: Any) -> Sequence[str]:
    """Parse a list of texts, or one text with commas between them; empty texts are left out."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Sequence):
        raise InvalidSettingValue("is not a list", "write a list of names, or one text with commas")
    return tuple(name for part in parts for name in [text(part).strip()] if name)


def text_map(value: Any) -> dict[str, str]:
    """Parse a map from names to texts, a list of such maps, or the text ``name=text,name=text``.

    Flyte uses a list of maps to keep the case of names.
    """
    first = value[0] if isinstance(value, Sequence) and value else None
    if value == "" or isinstance(first, str):
        return _parse_pairs(names(value))
    return {text(key): text(item) for key, item in merge_maps(value).items()}


def _parse_pairs(words: Sequence[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in words]
    if not all(name and equals for name, equals, _ in pairs):
        raise InvalidSettingValue(
            "is not a map", "write names with values, as a map, a list of maps or name=value,name=value"
        )
    return {name.strip(): item.strip() for name, _, item in pairs}


def quantity(value: Any) -> Quantity:
    """Parse a Kubernetes quantity of 0 or more, such as ``500m`` or ``16Gi``."""
    try:
        return parse_amount(text(value))
    except InvalidQuantity as refusal:
        raise InvalidSettingValue(
            "is not a quantity of 0 or more", "write it as Kubernetes does, such as 2, 500m or 16Gi"
        ) from refusal


def quantities(value: Any) -> dict[str, Quantity]:
    """Parse a map from resource names to Kubernetes quantities of 0 or more."""
    return {text(name): quantity(amount) for name, amount in merge_maps(value).items()}


def message_size(value: Any) -> int:
    """Parse the maximum size of a gRPC message, from ``64Ki`` to ``2047Mi``, and return it in bytes."""
    size = quantity(value).whole
    if not _SMALLEST_MESSAGE <= size <= _LARGEST_MESSAGE:
        raise InvalidSettingValue("is not a valid message size", "write 64Ki to 2047Mi")
    return size


def duration(value: Any) -> timedelta:
    """Parse a duration in Go's form, such as ``90s`` or ``1h30m``; zero needs no unit."""
    written = text(value)
    parts = _DURATION.findall(written)
    if written != "0" and (not parts or "".join(map("".join, parts)) != written):
        raise InvalidSettingValue("is not a duration", "write it as Go does, such as 90s, 3m or 1h30m")
    try:
        return sum((float(number) * _UNITS[unit] for number, unit in parts), timedelta(0))
    except OverflowError as refusal:
        raise InvalidSettingValue("is too long", "write 0 for no limit") from refusal


def merge_maps(value: Any) -> Mapping[Any, Any]:
    """Return a map, or the union of a list of maps; for a repeated key the last one counts."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(part, Mapping) for part in parts):
        raise InvalidSettingValue("is not a map", "write names with values, as a map or a list of maps")
    return {key: item for part in parts for key, item in part.items()}
