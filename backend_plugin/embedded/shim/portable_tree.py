"""The processes of one pod where there is no /proc: as `psutil` tells of them.

Lives here: macOS. Without a kernel that hands orphans to us, what lost its parent is found by having been
seen before, and by its mark.
"""

from __future__ import annotations

import os
import signal

import psutil

from backend_plugin.embedded.shim.layout import MARK
from backend_plugin.embedded.shim.process_tree import ProcessTree, kill

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection


class PortableTree(ProcessTree):
    """The same promises; dearer to keep."""

    def __init__(self, uid: str) -> None:
        super().__init__([])
        self._uid = uid
        self._seen: dict[psutil.Process, str] = {}

    def members(self, mains: dict[int, str], names: list[str]) -> dict[int, str]:
        """All that live, with their containers, given these and the living first process of each."""
        owners = {each: owner for each, owner in self._seen.items() if _lives(each)}
        for child in psutil.Process(os.getpid()).children():
            owners[child] = mains.get(child.pid) or self.owner(child.pid, names)
        # Without a first process its container is over: whatever got away has to be found now.
        if len(mains) < len(names) or not names:
            owners |= {each: owner for each, owner in _marked([self._uid]).items() if each not in owners}
        for parent, owner in list(owners.items()):
            owners |= dict.fromkeys(_below(parent), owner)
        self._seen = owners
        self._known = {each.pid: owner for each, owner in owners.items()}
        return dict(self._known)

    def memory(self, pids: list[int], limit: int | None) -> int:  # noqa: ARG002 - there is only one way.
        """The bytes that they hold and share with nobody."""
        return sum(map(_held, pids))


def kill_marked(uids: Collection[str]) -> bool:
    """Kill what pods left behind whose shims have died; whether there was anything."""
    found = [each.pid for each in _marked(uids)]
    return bool(kill(found, signal.SIGKILL))


def _marked(uids: Collection[str]) -> dict[psutil.Process, str]:
    """The processes of these pods, with their containers."""
    found = {}
    for each in psutil.process_iter():
        try:
            pod, _, container = each.environ().get(MARK, "").partition("/")
        except (psutil.Error, OSError):  # Somebody else's, or gone.
            continue
        if pod in uids and container and each.pid != os.getpid():
            found[each] = container
    return found


def _below(parent: psutil.Process) -> list[psutil.Process]:
    try:
        return parent.children(recursive=True)
    except psutil.Error:
        return []


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _held(pid: int) -> int:
    process = psutil.Process(pid) if psutil.pid_exists(pid) else None
    if process is None:
        return 0
    try:
        return int(process.memory_full_info().uss)
    except psutil.AccessDenied:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
