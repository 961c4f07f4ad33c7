"""Getters for untrusted JSON that never raise: a field of the wrong type counts as absent."""

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import lru_cache
from typing import Final, cast

from backend_plugin.core.values import JsonValue, Manifest

NOTHING: Final[Manifest] = {}

# Parsed JSON contains dicts. Checking for dict first is ten times as fast as for the abstract class.
_MAPPINGS: Final = (dict, Mapping)

# The largest absolute value of a number: 68 years in seconds, which a timedelta can represent.
_LARGEST: Final = 2**31 - 1
_LONGEST: Final = 4_000
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:?\d\d|)", re.ASCII
)


def get_value(value: JsonValue, *keys: str) -> JsonValue:
    """Return the value at the path `keys`, or None."""
    for key in keys:
        value = value.get(key) if isinstance(value, _MAPPINGS) else None
    return value


def get_mapping(value: JsonValue, *keys: str) -> Manifest:
    """Return the mapping at the path `keys`, or an empty one."""
    child = get_value(value, *keys)
    return child if isinstance(child, _MAPPINGS) else NOTHING


def get_mappings(value: JsonValue, *keys: str) -> list[Manifest]:
    """Return the mappings in the list at the path `keys`, without its other elements."""
    child = get_value(value, *keys)
    return [each for each in child if isinstance(each, _MAPPINGS)] if isinstance(child, list | tuple) else []


def get_texts(value: JsonValue, *keys: str) -> list[str]:
    """Return the strings in the list at the path `keys`, without its other elements."""
    child = get_value(value, *keys)
    return [each for each in child if isinstance(each, str)] if isinstance(child, list | tuple) else []


def get_text(value: JsonValue, *keys: str) -> str:
    """Return the string at the path `keys`, or an empty one."""
    child = get_value(value, *keys)
    return child if isinstance(child, str) else ""


def get_interned(value: JsonValue, *keys: str) -> str:
    """Return the string at the path `keys`, interned because many objects have the same value."""
    return intern_text(get_text(value, *keys))


@lru_cache(maxsize=8_192)
def intern_text(text: str) -> str:
    """Return a text equal to `text`, the same object for all equal texts, so that records share memory."""
    return text


def get_bounded_text(value: JsonValue, *keys: str) -> str:
    """Return the first 4,000 characters of the string at the path `keys`; empty if there is no string.

    The limit bounds the time of regular expressions that search the text.
    """
    return get_text(value, *keys)[:_LONGEST]


def get_int(value: JsonValue, *keys: str) -> int | None:
    """Return the number at the path `keys`; None if there is none. Decimals of a float are cut off.

    The value may also be a text with a whole number. A number beyond ±(2**31 - 1) becomes this limit.
    """
    child = get_value(value, *keys)
    if isinstance(child, bool) or not isinstance(child, int | float | str):
        return None
    try:
        number = int(child)
    except (ValueError, OverflowError):  # Text without a number, not-a-number, infinity.
        return None
    return max(-_LARGEST, min(_LARGEST, number))


def get_text_map(value: JsonValue, *keys: str) -> Mapping[str, str]:
    """Return the mapping at the path `keys`, without values that are not strings; empty if there is none.

    Its keys are interned.
    """
    child = get_value(value, *keys)
    if not isinstance(child, _MAPPINGS):
        return {}
    return {intern_text(name): text for name, text in child.items() if isinstance(text, str)}


def get_time(value: JsonValue, *keys: str) -> datetime | None:
    """Return the RFC 3339 time at the path `keys`, in UTC if it has no zone; None if absent or invalid."""
    child = get_value(value, *keys)
    return parse_time(child) if isinstance(child, str) else None


# The objects of a job contain the same times, and each update repeats them.
@lru_cache(maxsize=8_192)
def parse_time(text: str) -> datetime | None:
    """Parse an RFC 3339 time with any number of decimals; return it in UTC, or None if invalid."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    day, clock, decimals, zone = cast("tuple[str, str, str | None, str]", match.groups())
    offset = "+00:00" if zone in ("", "Z", "z") else zone
    offset = offset if ":" in offset else f"{offset[:3]}:{offset[3:]}"
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}.{(decimals or '')[:6]:0<6}{offset}")
        return moment.astimezone(timezone.utc)
    except (ValueError, OverflowError):  # For example the 31st of February, or a year before 1.
        return None


def parse_subsecond_ns(text: str) -> int:
    """Return the nanoseconds within the second of an RFC 3339 time; 0 if the text is not one."""
    match = _TIME.fullmatch(text.strip())
    return int(f"{(match.group(3) or '')[:9]:0<9}") if match else 0


def format_sortable_time(text: str) -> str:
    """Return an RFC 3339 time as text that sorts by time: in UTC, without a zone. Other text is unchanged."""
    if text.endswith("Z"):
        return text[:-1]
    moment = parse_time(text)
    return text if moment is None else f"{moment:%Y-%m-%dT%H:%M:%S}.{parse_subsecond_ns(text):09d}"
