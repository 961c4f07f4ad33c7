"""What is left of pods whose shims were killed: processes that only their environment tells of.

Lives here: the one scan of all processes. Does not: anything while there is a shim, which knows its own.
"""

import sys
import time
from collections.abc import Collection
from typing import Final

from backend_plugin.embedded.shim import process_tree

# A process that forks faster than it is found would keep us for ever.
_TRIES: Final = 50
_PAUSE_SECONDS: Final = 0.002


def kill_leftovers(uids: Collection[str]) -> None:
    """Kill those of these pods, until none is found; each time there may be new ones."""
    for _ in range(_TRIES):
        if not _kill_marked(uids):
            return
        time.sleep(_PAUSE_SECONDS)


def _kill_marked(uids: Collection[str]) -> bool:
    if sys.platform == "linux":
        return process_tree.kill_marked(uids)
    from backend_plugin.embedded.shim import portable_tree

    return portable_tree.kill_marked(uids)
