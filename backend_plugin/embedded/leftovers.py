"""Kills the processes of pods whose shims were killed. It finds them by their environment.

It is not used while a shim runs, because a shim tracks its own processes.
"""

import sys
import time
from collections.abc import Collection
from typing import Final

from backend_plugin.embedded.shim import process_tree

# Limits the time for a process that forks faster than it is found.
_TRIES: Final = 50
_PAUSE_SECONDS: Final = 0.002


def kill_leftovers(uids: Collection[str]) -> None:
    """Kill the processes of these pods until none is found. Processes may fork during a scan."""
    for _ in range(_TRIES):
        if not _kill_marked(uids):
            return
        time.sleep(_PAUSE_SECONDS)


def _kill_marked(uids: Collection[str]) -> bool:
    if sys.platform == "linux":
        return process_tree.kill_marked(uids)
    from backend_plugin.embedded.shim import portable_tree

    return portable_tree.kill_marked(uids)
