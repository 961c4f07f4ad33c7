"""The reservations in the log of kube-scheduler: pods that have a node only in its memory.

A member of a gang keeps its node while it waits for the others. The scheduler counts the resources as used,
but no object shows the node before the gang is complete. An incomplete gang gives its nodes back.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

_LINE: Final = re.compile(
    r'^[IWE](?P<date>\d{4} \d\d:\d\d:\d\d\.\d{6}) .*?\] "(?P<what>[^"]*)".* pod="[^"/]*/(?P<pod>[^"]*)"'
)
_NODE: Final = re.compile(r' nodeName="([^"]*)"')
_WAITS: Final = "Pod is waiting to be scheduled to node"
_REJECTIONS: Final = frozenset({"PostFilter rejects the pod", "Unreserve rejects"})
"""The messages about waiting pods that lose their nodes; they need the verbosity 3."""
_LONGEST: Final = 60
"""The default limit in seconds for the wait of a placed pod."""


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """The time in which a pod had a node only in the memory of the scheduler, or longer."""

    pod: str
    node: str
    first: float
    last: float


def read_reservations(log: Path) -> Sequence[Reservation]:
    """Return the reservations; none if the cluster has another scheduler."""
    return [*_iter_reservations(log)] if log.exists() else []


def _iter_reservations(log: Path) -> Iterator[Reservation]:
    waiting: dict[str, tuple[str, float]] = {}
    for line in log.read_text(errors="replace").splitlines():
        found = _LINE.match(line)
        if found is None or found["what"] not in (_WAITS, *_REJECTIONS):
            continue
        at, pod = _parse_time(found["date"]), found["pod"]
        if pod in waiting:
            node, first = waiting.pop(pod)
            yield Reservation(pod=pod, node=node, first=first, last=min(at, first + _LONGEST))
        if found["what"] == _WAITS and (node := _NODE.search(line)):
            waiting[pod] = node[1], at
    for pod, (node, first) in waiting.items():
        yield Reservation(pod=pod, node=node, first=first, last=first + _LONGEST)


def _parse_time(date: str) -> float:
    """Return the local time of a log line, which has no year, as seconds since the epoch."""
    now = datetime.now()  # noqa: DTZ005 - klog writes local times.
    year = now.year
    candidates = (datetime.strptime(f"{each} {date}", "%Y %m%d %H:%M:%S.%f") for each in (year, year - 1))  # noqa: DTZ007
    return next((each.timestamp() for each in candidates if each <= now), math.nan)
