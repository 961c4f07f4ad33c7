"""Sets of completion indexes of a Job, as Kubernetes writes them: ``0,2-4``."""

import re
from collections.abc import Sequence
from typing import Final

FORMAT: Final = "increasing numbers and ranges such as 0,2-4"
_INTERVAL: Final = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def parse_indexes(text: str) -> Sequence[range] | None:
    """Return the ranges in a text such as ``0,2-4``; None if it is invalid or not in ascending order."""
    ranges: list[range] = []
    for part in text.split(","):
        match = _INTERVAL.fullmatch(part)
        if match is None:
            return None
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if (match[2] is not None and last <= first) or (ranges and first < ranges[-1].stop):
            return None
        ranges.append(range(first, last + 1))
    return ranges


def contains_index(text: str, index: int) -> bool:
    """True if `text`, such as ``0,2-4``, is a valid set of indexes that contains `index`."""
    return any(index in each for each in parse_indexes(text) or ())
