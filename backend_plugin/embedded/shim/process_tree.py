"""Finds, measures and kills the processes of one pod with Linux's /proc. See also `portable_tree`."""

from __future__ import annotations

import os

from backend_plugin.embedded.shim.layout import MARK


class ProcessTree:
    """Finds the descendants of this process, the shim of a pod, and the container of each descendant.

    The kernel makes this process the parent of orphans: processes whose parent has ended. If only one
    container runs, an orphan belongs to that container. Otherwise, the container of an orphan is determined
    from the last scan, or from the environment variable `layout.MARK` of the orphan.
    """

    def __init__(self) -> None:
        self._known: dict[int, str] = {}

    def map_members(self, main_pids: dict[int, str], names: list[str]) -> dict[int, str]:
        """Return the container name of each live process of the pod, by pid.

        Args:
            main_pids: The name of each running container, by the pid of its first process.
            names: The names of all containers that may have processes, even if the first process has ended.
        """
        found: dict[int, str] = {}
        for pid in _list_children(os.getpid()):
            owner = main_pids.get(pid) or self.find_owner(pid, names)
            below = [pid]
            while below:
                each = below.pop()
                found[each] = owner
                below += _list_children(each)
        self._known = found
        return found

    def find_owner(self, pid: int, names: list[str]) -> str:
        """Return the container name of a process whose parent has ended; empty if it is unknown."""
        if len(names) == 1:
            return names[0]
        return self._known.get(pid) or _read_container(pid)

    def measure_memory(self, pids: list[int], limit: int) -> int:
        """Return the memory of the processes in bytes.

        A fast estimate counts a shared page once for each process. If this estimate exceeds `limit`, a slower
        measurement counts each shared page only once.
        """
        cheap = sum(_sum_fields(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:")) for pid in pids)
        if cheap <= limit:
            return cheap
        shares = [_sum_fields(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:")) for pid in pids]
        # Kernels before 5.5 do not report shared memory separately.
        return sum(shares) or cheap


def _read_container(pid: int) -> str:
    mark = f"{MARK}=".encode()
    variables = _read_file(f"/proc/{pid}/environ").split(b"\0")
    found = next((each for each in variables if each.startswith(mark)), b"")
    return found.rpartition(b"/")[2].decode(errors="replace")


def send_signal(pids: list[int], number: int) -> list[int]:
    """Send a signal to the processes. Return the pids of those that exist and accept the signal."""
    sent = []
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):  # A process that changed its user cannot be signalled.
            continue
        sent.append(pid)
    return sent


def _list_children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - a shim loads no pathlib.
    except OSError:
        return found
    for task in tasks:
        found += map(int, _read_file(f"/proc/{pid}/task/{task}/children").split())
    return found


def _sum_fields(path: str, names: tuple[bytes, ...]) -> int:
    lines = _read_file(path).splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(names))


def _read_file(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a shim loads no pathlib.
            return file.read()
    except OSError:  # The process has ended.
        return b""
