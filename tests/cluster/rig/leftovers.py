"""Removes the cgroups and network links that outlive the processes of a rig.

Their names contain the id of the process that started the rig. The next rig that starts removes those of all
processes that have ended.
"""

import contextlib
import os
from pathlib import Path

from rig.process import run_command, wait_until

CGROUPS = Path("/sys/fs/cgroup")
# runc creates cgroups in further hierarchies, if the machine has them.
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
_MARK = "kfpt"


@contextlib.contextmanager
def name():
    """Yield the name of the link and the cgroups of a rig; remove its leftovers and those of ended rigs."""
    for each in {path.name for pattern in ("fs/cgroup/*", "class/net") for path in _find(pattern)}:
        if not Path("/proc", each.removeprefix(_MARK)).exists():
            remove(each)
    own = f"{_MARK}{os.getpid()}"
    try:
        yield own
    finally:
        remove(own)


def _find(folder):
    return Path("/sys").glob(f"{folder}/{_MARK}*")


def remove(name):
    """Remove the resources of a rig whose processes have been killed."""
    if Path("/sys/class/net", name).exists():
        # The link may be gone already: it is deleted with its other end.
        run_command("ip", "link", "delete", name)
    wait_until(lambda: _without_cgroups(name), 60, lambda: f"processes are left: {list(_cgroups(name))}")


def _cgroups(name):
    for top in CGROUPS.glob(f"*/{name}"):
        for folder, _, _ in os.walk(top, topdown=False):
            yield Path(folder)


def _without_cgroups(name):
    for each in _cgroups(name):
        # A cgroup is busy until its last process is reaped.
        with contextlib.suppress(OSError):
            each.rmdir()
    return not any(_cgroups(name))
