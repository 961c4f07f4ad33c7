"""What outlives the processes of a rig if nobody removes it: its cgroups, its link; and whose they are.

Each rig has a number, which is in the names of both, and a file that it holds locked while it lives. The
kernel lets go of the lock, whatever ends the rig, and the next that starts removes what belongs to nobody.
"""

import contextlib
import fcntl
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rig.process import until

CGROUPS: Final = Path("/sys/fs/cgroup")
# runc makes them in further hierarchies, if there are any.
CONTROLLERS: Final = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
_LOCKS: Final = Path("/run/kfpytorch-rigs")
_MARK: Final = "kfpt"
_RIGS: Final = 1 << 14
_TRIES: Final = 100


def name(number: int) -> str:
    """What its link and its cgroups are called."""
    return f"{_MARK}{number}"


@contextlib.contextmanager
def number() -> Iterator[int]:
    """A number that no other rig has; what it left is removed in the end, and what dead ones left before."""
    _LOCKS.mkdir(exist_ok=True)
    _bury()
    with contextlib.ExitStack() as held:
        chosen = _chosen(held)
        held.callback(remove, chosen)
        yield chosen


def _chosen(held: contextlib.ExitStack) -> int:
    for _ in range(_TRIES):
        chosen = random.randrange(_RIGS)
        with contextlib.suppress(BlockingIOError):
            held.enter_context(_held(chosen))
            return chosen
    raise AssertionError(f"{_TRIES} numbers of rigs are all taken: see {_LOCKS}")


def remove(number: int) -> None:
    """What a rig left, whose processes have been killed."""
    link = name(number)
    if Path("/sys/class/net", link).exists():
        # It may be gone by now: it goes with its other end.
        subprocess.run(["ip", "link", "delete", link], check=False, capture_output=True, timeout=60)
    until(lambda: _without_cgroups(link), 30, lambda: f"processes of {link} are left: {list(_cgroups(link))}")


def _bury() -> None:
    found = {path.name for path in CGROUPS.glob(f"*/{_MARK}*")}
    found |= {path.name for path in Path("/sys/class/net").glob(f"{_MARK}*")}
    found |= {name(int(path.name)) for path in _LOCKS.iterdir()}
    for each in found:
        number = int(each.removeprefix(_MARK))
        with contextlib.suppress(BlockingIOError), _held(number):
            remove(number)


@contextlib.contextmanager
def _held(number: int) -> Iterator[None]:
    """The lock of a rig; raises BlockingIOError if that lives."""
    path = _LOCKS / str(number)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Somebody may have removed the file between the two.
        if not path.exists() or path.stat().st_ino != os.fstat(lock.fileno()).st_ino:
            raise BlockingIOError
        try:
            yield
        finally:
            path.unlink()


def _cgroups(name: str) -> Iterator[Path]:
    """All of a rig, children first."""
    for top in CGROUPS.glob(f"*/{name}"):
        for folder, _, _ in os.walk(top, topdown=False):
            yield Path(folder)


def _without_cgroups(name: str) -> bool:
    for each in _cgroups(name):
        # Busy while the last of its processes is being buried.
        with contextlib.suppress(OSError):
            each.rmdir()
    return not any(_cgroups(name))
