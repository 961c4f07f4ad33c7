"""Looking into JSON of which nothing is certain: an absent field and one of another type are the same.

Lives here: getters that never raise. Does not: what a field means.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import lru_cache
from typing import Final, cast

from backend_plugin.core.values import JsonValue, Manifest

NOTHING: Final[Manifest] = {}

# An abstract class takes ten times as long to recognize one of its own: what is parsed is a dict.
_MAPPINGS: Final = (dict, Mapping)

# Longer durations and larger counts than these 68 years mean nothing, and a timedelta has its limits.
_LARGEST: Final = 2**31 - 1
_LONGEST: Final = 4_000
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII
)


def section(value: JsonValue, *keys: str) -> Manifest:
    """The mapping under `keys`, one below the other; an empty one if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, _MAPPINGS) else None
    return value if isinstance(value, _MAPPINGS) else NOTHING


def entries(value: Manifest, key: str) -> list[Manifest]:
    """The mappings of the list under `key`; whatever else it holds is left out."""
    found = value.get(key)
    return [each for each in found if isinstance(each, _MAPPINGS)] if isinstance(found, list | tuple) else []


def text(value: Manifest, key: str) -> str:
    """The string under `key`, or an empty one."""
    found = value.get(key)
    return found if isinstance(found, str) else ""


def word(value: Manifest, key: str) -> str:
    """The string under `key`, one of few or one that many objects share: equal ones are one object."""
    return shared(text(value, key))


@lru_cache(maxsize=8_192)
def shared(said: str) -> str:
    """The same text; equal ones are one object, so that thousands of objects hold it once."""
    return said


def words(value: Manifest, key: str) -> str:
    """The beginning of the string under `key`: nobody reads more, and what is searched has an end."""
    return text(value, key)[:_LONGEST]


def number(value: Manifest, key: str) -> int | None:
    """The whole number under `key`, also where it is written as a double or as text."""
    found = value.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        return None
    try:
        whole = int(found)
    except (ValueError, OverflowError):  # Text without a number, not-a-number, infinity.
        return None
    return max(-_LARGEST, min(_LARGEST, whole))


def texts(value: Manifest, key: str) -> Mapping[str, str]:
    """The mapping from text to text under `key`, without what is no text; equal names are one object."""
    found = value.get(key)
    if not isinstance(found, _MAPPINGS):
        return {}
    return {shared(name): said for name, said in found.items() if isinstance(said, str)}


def moment(value: Manifest, key: str) -> datetime | None:
    """The RFC 3339 time under `key`; without a zone it is in UTC."""
    found = value.get(key)
    return parse_moment(found) if isinstance(found, str) else None


# The objects of a job tell of the same seconds, and tell them again with every change.
@lru_cache(maxsize=8_192)
def parse_moment(said: str) -> datetime | None:
    """An RFC 3339 time with as many decimals as one likes, in UTC; None for anything else."""
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
    except (ValueError, OverflowError):  # The 31st of February; a year before the first.
        return None


def decimals_ns(said: str) -> int:
    """The nanoseconds within the second of an RFC 3339 time; 0 where it is none."""
    match = _TIME.fullmatch(said.strip())
    return int(f"{(match.group(3) or '')[:9]:0<9}") if match else 0


def in_order(said: str) -> str:
    """An RFC 3339 time as text that sorts as times do: in UTC, without its zone; what is none stays so."""
    if said.endswith("Z"):
        return said[:-1]
    moment = parse_moment(said)
    return said if moment is None else f"{moment:%Y-%m-%dT%H:%M:%S}.{decimals_ns(said):09d}"
