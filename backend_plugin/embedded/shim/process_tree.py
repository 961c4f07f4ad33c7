"""Who descends from whom, what they hold in memory, and that all of them die.

Lives here: the processes of one pod, as Linux tells of them. Where there is no /proc, see `portable_tree`.
"""

from __future__ import annotations

import os
import signal

from backend_plugin.embedded.shim.layout import MARK

_TASKS_HAVE_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110


class ProcessTree:
    """The processes below this one, each with the container that it belongs to.

    A process whose parent died is ours, as we are its new parent. It belongs to the only container that there
    is, or to that under which it was seen before, or else to that of its mark, which only a program that
    clears its environment can lose.
    """

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self._known: dict[int, str] = {}

    def members(self, mains: dict[int, str], names: list[str]) -> dict[int, str]:
        """All that live, with their containers, given these and the living first process of each."""
        children = _children if _TASKS_HAVE_CHILDREN else _by_parent().get
        found: dict[int, str] = {}
        for pid in children(os.getpid()) or ():
            owner = mains.get(pid) or self.owner(pid, names) or _marked(pid, self._uid)
            below = [pid]
            while below:
                each = below.pop()
                found[each] = owner
                below += children(each) or ()
        self._known = found
        return found

    def owner(self, pid: int, names: list[str]) -> str:
        """The container of a process that has lost its parent, as far as it is remembered."""
        return names[0] if len(names) == 1 else self._known.get(pid, "")

    def memory(self, pids: list[int], limit: int | None) -> int:
        """The bytes that they hold; pages of several count once, which is looked into only near a limit."""
        cheap = sum(_fields(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:")) for pid in pids)
        if limit is None or cheap <= limit:
            return cheap
        shares = [_fields(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:")) for pid in pids]
        # Kernels before 5.5 do not tell shares apart.
        return sum(shares) or cheap


def kill(pids: list[int], number: int) -> None:
    """Send a signal to those that are still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def kill_marked(uid: str) -> bool:
    """Kill what a pod left behind whose shim has died; whether there was anything."""
    ours = os.getpid()
    found = [pid for pid in _all() if pid != ours and _marked(pid, uid)]
    kill(found, signal.SIGKILL)
    return bool(found)


def _marked(pid: int, uid: str) -> str:
    """The container of this pod in whose environment a process was started; empty if it was not."""
    begin = f"{MARK}={uid}/".encode()
    for entry in _read(f"/proc/{pid}/environ").split(b"\0"):
        if entry.startswith(begin):
            return entry[len(begin) :].decode(errors="replace")
    return ""


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - a shim loads no pathlib.
    except OSError:
        return found
    for task in tasks:
        found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def _by_parent() -> dict[int, list[int]]:
    """Kernels without CONFIG_PROC_CHILDREN: all processes have to be looked at."""
    found: dict[int, list[int]] = {}
    for pid in _all():
        # The second field is a name, in which there may be anything.
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if fields:
            found.setdefault(int(fields[1]), []).append(pid)
    return found


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def _fields(path: str, names: tuple[bytes, ...]) -> int:
    """The sum of these lines of a file, in bytes."""
    lines = _read(path).splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(names))


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        data = b""
        while more := os.read(fd, 1 << 16):
            data += more
    except OSError:  # It went meanwhile.
        return b""
    else:
        return data
    finally:
        os.close(fd)
