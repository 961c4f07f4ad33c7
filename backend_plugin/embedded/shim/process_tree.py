"""Who descends from whom, what they hold in memory, and that all of them die.

Lives here: the processes of one pod, as Linux tells of them. Where there is no /proc, see `portable_tree`.
"""

from __future__ import annotations

import os
import signal

from backend_plugin.embedded.shim.layout import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

# Kubernetes gives pods that promise less than they may use 2 to 999.
_LEAST_SCORE, _MOST_SCORE = 500, 1000
_TASKS_HAVE_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110


class ProcessTree:
    """The processes below this one, each with the container that it belongs to.

    A process whose parent died is ours, as we are its new parent. It belongs to the only container that there
    is, or to the one under which it was seen before; or else its `oom_score_adj` tells, which is inherited
    whatever a program does to its session and its environment.
    """

    def __init__(self, containers: list[str]) -> None:
        first = max(_oom_score("self"), _LEAST_SCORE) + 1
        self._scores = dict(zip(range(first, _MOST_SCORE + 1), containers, strict=False))
        self._known: dict[int, str] = {}

    def oom_score(self, container: str) -> int | None:
        """The `oom_score_adj` that tells its processes from others'; None where there are too many.

        When the machine has no memory left, all of them are killed before the server is.
        """
        return next((score for score, name in self._scores.items() if name == container), None)

    def members(self, mains: dict[int, str], names: list[str]) -> dict[int, str]:
        """All that live, with their containers, given these and the living first process of each."""
        children = _children if _TASKS_HAVE_CHILDREN else _by_parent().get
        found: dict[int, str] = {}
        for pid in children(os.getpid()) or ():
            owner = mains.get(pid) or self.owner(pid, names)
            below = [pid]
            while below:
                each = below.pop()
                found[each] = owner
                below += children(each) or ()
        self._known = found
        return found

    def owner(self, pid: int, names: list[str]) -> str:
        """The container of a process that has lost its parent, as far as it can be told."""
        if len(names) == 1:
            return names[0]
        return self._known.get(pid) or self._scores.get(_oom_score(str(pid)), "")

    def memory(self, pids: list[int], limit: int | None) -> int:
        """The bytes that they hold; pages of several count once, which is looked into only near a limit."""
        cheap = sum(_fields(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:")) for pid in pids)
        if limit is None or cheap <= limit:
            return cheap
        shares = [_fields(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:")) for pid in pids]
        # Kernels before 5.5 do not tell shares apart.
        return sum(shares) or cheap


def _oom_score(pid: str) -> int:
    return int(_read(f"/proc/{pid}/oom_score_adj") or 0)


def kill(pids: list[int], number: int) -> list[int]:
    """Send a signal to those that are still there, and may be sent one; gives whom it was sent to."""
    sent = []
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):  # One that has become another user's is out of reach.
            continue
        sent.append(pid)
    return sent


def kill_marked(uids: Collection[str]) -> bool:
    """Kill what pods left behind whose shims have died; whether there was anything."""
    ours = os.getpid()
    found = [pid for pid in _all() if pid != ours and _pod(pid) in uids]
    return bool(kill(found, signal.SIGKILL))


def _pod(pid: int) -> str:
    """The pod in whose environment a process was started; empty if it was in none."""
    begin = f"{MARK}=".encode()
    for entry in _read(f"/proc/{pid}/environ").split(b"\0"):
        if entry.startswith(begin):
            return entry[len(begin) :].partition(b"/")[0].decode(errors="replace")
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
