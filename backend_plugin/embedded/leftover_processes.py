"""Kills the remaining processes of pods whose shim was killed, by a scan of all processes."""

import sys
import time
from collections.abc import Collection
from typing import Final

from backend_plugin.embedded.shim import process_tree

# Limit the scans: a process might fork faster than it is found.
_TRIES: Final = 50
_PAUSE_SECONDS: Final = 0.002


def kill_leftovers(uids: Collection[str]) -> None:
    """Kill the processes of these pods. Repeat the scan until it finds none, because they may fork."""
    for _ in range(_TRIES):
        if not _kill_pod_processes(uids):
            return
        time.sleep(_PAUSE_SECONDS)


def _kill_pod_processes(uids: Collection[str]) -> bool:
    if sys.platform == "linux":
        return process_tree.kill_pod_processes(uids)
    from backend_plugin.embedded.shim import portable_tree

    return portable_tree.kill_pod_processes(uids)
