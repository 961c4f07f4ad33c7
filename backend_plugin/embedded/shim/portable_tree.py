"""Finds the processes of a pod with `psutil`: after the end of its shim, and on systems without /proc.

Without /proc, the container of an orphan (a process whose parent has ended) is determined from an earlier
scan, or from the environment variable `layout.MARK` of the orphan.
"""

from __future__ import annotations

import os
import signal
import time

import psutil

from backend_plugin.embedded.shim.layout import MARK
from backend_plugin.embedded.shim.process_tree import ProcessTree, send_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

# Limit the scans: a process might fork faster than it is found.
_TRIES = 50
_PAUSE_SECONDS = 0.002


class PortableTree(ProcessTree):
    """A `ProcessTree` that uses `psutil` instead of /proc; it is slower, but does not need Linux."""

    def __init__(self, uid: str) -> None:
        super().__init__()
        self._uid = uid
        self._owners: dict[psutil.Process, str] = {}

    def map_members(self, main_pids: dict[int, str], names: list[str]) -> dict[int, str]:
        """Return the container name of each live process of the pod by pid; see `ProcessTree.map_members`."""
        owners = {each: owner for each, owner in self._owners.items() if _is_alive(each)}
        for child in psutil.Process(os.getpid()).children():
            owners[child] = main_pids.get(child.pid) or self.find_owner(child.pid, names)
        # A container without its first process is ending: its remaining processes must be found now.
        if len(main_pids) < len(names) or not names:
            owners |= {
                each: owner for each, owner in _find_pod_processes([self._uid]).items() if each not in owners
            }
        for parent, owner in list(owners.items()):
            owners |= dict.fromkeys(_list_descendants(parent), owner)
        self._owners = owners
        self._known = {each.pid: owner for each, owner in owners.items()}
        return dict(self._known)

    def measure_memory(self, pids: list[int], limit: int) -> int:  # noqa: ARG002 - there is only one measure.
        """Return the memory in bytes that the processes do not share with others. `limit` has no effect."""
        return sum(map(_measure_process, pids))


def kill_leftovers(uids: Collection[str]) -> None:
    """Kill the remaining processes of pods whose shims have ended, with their descendants.

    The environment variable `layout.MARK` identifies the processes of a pod. The scan is repeated, because a
    process may fork during the scan.
    """
    for _ in range(_TRIES):
        found = set(_find_pod_processes(uids))
        for each in tuple(found):
            found.update(_list_descendants(each))
        if not send_signal([each.pid for each in found], signal.SIGKILL):
            return
        time.sleep(_PAUSE_SECONDS)


def _find_pod_processes(uids: Collection[str]) -> dict[psutil.Process, str]:
    found = {}
    for each in psutil.process_iter():
        try:
            pod, _, container = each.environ().get(MARK, "").partition("/")
        except (psutil.Error, OSError):  # The process belongs to another user or has ended.
            continue
        if pod in uids and container and each.pid != os.getpid():
            found[each] = container
    return found


def _list_descendants(parent: psutil.Process) -> list[psutil.Process]:
    try:
        return parent.children(recursive=True)
    except psutil.Error:
        return []


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _measure_process(pid: int) -> int:
    process = psutil.Process(pid) if psutil.pid_exists(pid) else None
    if process is None:
        return 0
    try:
        return int(process.memory_full_info().uss)
    except psutil.AccessDenied:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
