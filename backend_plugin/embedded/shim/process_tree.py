"""Finds, measures and kills the processes of one pod with Linux's /proc. See also `portable_tree`."""

from __future__ import annotations

import os

# Kubernetes uses scores from 2 to 999 for burstable pods.
_LEAST_SCORE, _MOST_SCORE = 500, 1000
_TASKS_HAVE_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110


class ProcessTree:
    """The descendants of this process and their containers.

    The kernel makes this process the parent of orphans: processes whose parent has ended. If only one
    container runs, an orphan belongs to it. Else an orphan keeps its container from the last scan. If that
    scan did not find it, the inherited `oom_score_adj` determines the container. A new session or environment
    does not change that value.
    """

    def __init__(self, containers: list[str]) -> None:
        first = max(_read_oom_score("self"), _LEAST_SCORE) + 1
        self._scores = dict(zip(range(first, _MOST_SCORE + 1), containers, strict=False))
        self._known: dict[int, str] = {}

    def find_oom_score(self, container: str) -> int | None:
        """Return the `oom_score_adj` of a container's processes; each container of the pod has another one.

        It is higher than the score of the server: if memory runs out, the kernel kills these processes first.
        Return None if the containers before this one use all scores up to 1000, the maximum.
        """
        return next((score for score, name in self._scores.items() if name == container), None)

    def map_members(self, mains: dict[int, str], names: list[str]) -> dict[int, str]:
        """Return the container of each live process by pid.

        Args:
            mains: The containers by the pid of their live first process.
            names: The names of the containers that run, or of which processes may remain.
        """
        children = _list_children if _TASKS_HAVE_CHILDREN else _map_children().get
        found: dict[int, str] = {}
        for pid in children(os.getpid()) or ():
            owner = mains.get(pid) or self.find_owner(pid, names)
            below = [pid]
            while below:
                each = below.pop()
                found[each] = owner
                below += children(each) or ()
        self._known = found
        return found

    def find_owner(self, pid: int, names: list[str]) -> str:
        """Return the container of a process whose parent has ended. Empty if it is unknown.

        `names` are the containers that may have processes. If there is only one, return it.
        """
        if len(names) == 1:
            return names[0]
        return self._known.get(pid) or self._scores.get(_read_oom_score(str(pid)), "")

    def measure_memory(self, pids: list[int], limit: int) -> int:
        """Return the memory of the processes in bytes.

        A fast estimate counts shared pages once for each process. If the estimate exceeds `limit`, the result
        counts them once.
        """
        cheap = sum(_sum_fields(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:")) for pid in pids)
        if cheap <= limit:
            return cheap
        shares = [_sum_fields(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:")) for pid in pids]
        # Kernels before 5.5 do not report shared memory separately.
        return sum(shares) or cheap


def _read_oom_score(pid: str) -> int:
    return int(_read_file(f"/proc/{pid}/oom_score_adj") or 0)


def send_signal(pids: list[int], number: int) -> list[int]:
    """Send a signal to the processes that exist and accept it. Return their pids."""
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


def _map_children() -> dict[int, list[int]]:
    """Return the pids of child processes by the pid of their parent.

    Used for kernels without CONFIG_PROC_CHILDREN.
    """
    found: dict[int, list[int]] = {}
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:  # noqa: PTH208
        # The second field is a name, which may contain any character.
        fields = _read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if fields:
            found.setdefault(int(fields[1]), []).append(pid)
    return found


def _sum_fields(path: str, names: tuple[bytes, ...]) -> int:
    """Return the sum of the kB values in the lines of a file that start with one of `names`, in bytes."""
    lines = _read_file(path).splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(names))


def _read_file(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        data = b""
        while more := os.read(fd, 1 << 16):
            data += more
    except OSError:  # The process ended meanwhile.
        return b""
    else:
        return data
    finally:
        os.close(fd)
