"""Detect that stopped ranks wait without progress, so that they need no more time after SIGTERM.

A rank with a SIGTERM handler of its own does not end while its main thread is blocked in a collective or a
sleep. A rank that saves a checkpoint uses the processor, or reads or writes.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Seconds without progress after which ranks are considered blocked.
_LIMIT: Final = 1.0
# Background threads of gloo wake up 100 times per second and use about one tick (10 ms) in some seconds.
_TICKS: Final = 5


@dataclass
class IdleWatch:
    """The activity of a set of ranks since the last change."""

    last: object = None
    since: float = 0.0

    def is_idle(self, ranks: Sequence[int], now: float) -> bool:
        """True if no process of these ranks has made progress for `_LIMIT` seconds.

        Args:
            ranks: The process ids of the ranks; each leads a session.
            now: The time of the monotonic clock.
        """
        activity = _read_activity(ranks)
        if activity != self.last or not activity:
            self.last, self.since = activity, now
        return now - self.since >= _LIMIT


def _read_activity(sessions: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return the counters of each process in these sessions; empty on a system without /proc."""
    found: dict[str, tuple[int, ...]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # The process has just ended.
            # The fields after the name, which may contain spaces: session is the sixth field of the file.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) in sessions:
                found[entry.name] = (int(fields[11]) + int(fields[12])) // _TICKS, *_read_counters(entry)
    return found


def _read_counters(process: Path) -> list[int]:
    """Return the context switches of the main thread, and the bytes that the process has read and written."""
    status = (process / "status").read_text().splitlines()
    io = (process / "io").read_text().splitlines()
    lines = [line for line in (*status, *io) if line.partition(":")[0].endswith(("ctxt_switches", "char"))]
    return [int(line.split()[-1]) for line in lines]
