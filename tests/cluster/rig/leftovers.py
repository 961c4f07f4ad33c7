"""Removes the cgroups and network links that outlive the processes of a rig.

Each rig has a number, which is part of the names of its resources, and a lock file. The kernel releases the
lock when the rig ends for any reason. The next rig that starts removes the resources of all rigs without a
lock.
"""

import contextlib
import fcntl
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rig.process import wait_until

CGROUPS: Final = Path("/sys/fs/cgroup")
# runc creates cgroups in further hierarchies, if the machine has them.
CONTROLLERS: Final = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
_LOCKS: Final = Path("/run/kfpytorch-rigs")
_MARK: Final = "kfpt"
_RIGS: Final = 1 << 14
_TRIES: Final = 100


def name(number: int) -> str:
    """Return the name of the link and the cgroups of a rig."""
    return f"{_MARK}{number}"


@contextlib.contextmanager
def number() -> Iterator[int]:
    """Yield a number that no other rig uses, and remove its leftovers and those of ended rigs."""
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
            held.enter_context(_locked(chosen))
            return chosen
    raise AssertionError(f"{_TRIES} numbers of rigs are all taken: see {_LOCKS}")


def remove(number: int) -> None:
    """Remove the resources of a rig whose processes have been killed."""
    link = name(number)
    if Path("/sys/class/net", link).exists():
        # The link may be gone already: it is deleted with its other end.
        subprocess.run(["ip", "link", "delete", link], check=False, capture_output=True, timeout=60)
    wait_until(lambda: _without_cgroups(link), 60, lambda: f"processes are left: {list(_cgroups(link))}")


def _bury() -> None:
    found = {path.name for path in CGROUPS.glob(f"*/{_MARK}*")}
    found |= {path.name for path in Path("/sys/class/net").glob(f"{_MARK}*")}
    found |= {name(int(path.name)) for path in _LOCKS.iterdir()}
    for each in found:
        number = int(each.removeprefix(_MARK))
        with contextlib.suppress(BlockingIOError), _locked(number):
            remove(number)


@contextlib.contextmanager
def _locked(number: int) -> Iterator[None]:
    """Hold the lock of a rig. Raises BlockingIOError if another process holds it."""
    path = _LOCKS / str(number)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have removed the file between open() and flock().
        if not path.exists() or path.stat().st_ino != os.fstat(lock.fileno()).st_ino:
            raise BlockingIOError
        try:
            yield
        finally:
            path.unlink()


def _cgroups(name: str) -> Iterator[Path]:
    """Yield all cgroups of a rig, children first."""
    for top in CGROUPS.glob(f"*/{name}"):
        for folder, _, _ in os.walk(top, topdown=False):
            yield Path(folder)


def _without_cgroups(name: str) -> bool:
    for each in _cgroups(name):
        # A cgroup is busy until its last process is reaped.
        with contextlib.suppress(OSError):
            each.rmdir()
    return not any(_cgroups(name))
