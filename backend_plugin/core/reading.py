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
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII
)


def get_value(value: JsonValue, *keys: str) -> JsonValue:
    """Return the value at the path `keys`, or None."""
    for key in keys:
        value = value.get(key) if isinstance(value, _MAPPINGS) else None
    return value


def get_mapping(value: JsonValue, *keys: str) -> Manifest:
    """Return the mapping at the path `keys`, or an empty one."""
    found = get_value(value, *keys)
    return found if isinstance(found, _MAPPINGS) else NOTHING


def get_mappings(value: JsonValue, *keys: str) -> list[Manifest]:
    """Return the mappings in the list at the path `keys`, without its other elements."""
    found = get_value(value, *keys)
    return [each for each in found if isinstance(each, _MAPPINGS)] if isinstance(found, list | tuple) else []


def get_text(value: JsonValue, *keys: str) -> str:
    """Return the string at the path `keys`, or an empty one."""
    found = get_value(value, *keys)
    return found if isinstance(found, str) else ""


def get_interned(value: JsonValue, *keys: str) -> str:
    """Return the string at the path `keys`, interned because many objects have the same value."""
    return intern_text(get_text(value, *keys))


@lru_cache(maxsize=8_192)
def intern_text(said: str) -> str:
    """Return one object for equal texts, so that thousands of records share its memory."""
    return said


def get_bounded_text(value: JsonValue, *keys: str) -> str:
    """Return at most 4,000 characters of the string at the path `keys`, to limit the time of a search."""
    return get_text(value, *keys)[:_LONGEST]


def get_int(value: JsonValue, *keys: str) -> int | None:
    """Return the whole number at the path `keys`, which may be written as a float or as text."""
    found = get_value(value, *keys)
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        return None
    try:
        whole = int(found)
    except (ValueError, OverflowError):  # Text without a number, not-a-number, infinity.
        return None
    return max(-_LARGEST, min(_LARGEST, whole))


def get_text_map(value: JsonValue, *keys: str) -> Mapping[str, str]:
    """Return the mapping at the path `keys` without values that are not strings; its keys are interned."""
    found = get_value(value, *keys)
    if not isinstance(found, _MAPPINGS):
        return {}
    return {intern_text(name): said for name, said in found.items() if isinstance(said, str)}


def get_time(value: JsonValue, *keys: str) -> datetime | None:
    """Return the RFC 3339 time at the path `keys`; a time without a zone is in UTC."""
    found = get_value(value, *keys)
    return parse_time(found) if isinstance(found, str) else None


# The objects of a job contain the same times, and each update repeats them.
@lru_cache(maxsize=8_192)
def parse_time(said: str) -> datetime | None:
    """Parse an RFC 3339 time with any number of decimals; return it in UTC, or None if invalid."""
    match = _TIME.fullmatch(said.strip())
    if match is None:
        return None
    day, clock, decimals, zone = cast("tuple[str, str, str | None, str | None]", match.groups())
    offset = "+00:00" if zone is None or zone in "Zz" else zone
    offset = offset if ":" in offset else f"{offset[:3]}:{offset[3:]}"
    try:
        return datetime.fromisoformat(f"{day}T{clock}.{(decimals or '')[:6]:0<6}{offset}").astimezone(
            timezone.utc
        )
    except (ValueError, OverflowError):  # For example the 31st of February, or a year before 1.
        return None


def parse_subsecond_ns(said: str) -> int:
    """Return the nanoseconds within the second of an RFC 3339 time; 0 if the text is not one."""
    match = _TIME.fullmatch(said.strip())
    return int(f"{(match.group(3) or '')[:9]:0<9}") if match else 0


def format_sortable_time(said: str) -> str:
    """Return an RFC 3339 time as text that sorts by time: in UTC, without a zone. Other text is unchanged."""
    if said.endswith("Z"):
        return said[:-1]
    moment = parse_time(said)
    return said if moment is None else f"{moment:%Y-%m-%dT%H:%M:%S}.{parse_subsecond_ns(said):09d}"
