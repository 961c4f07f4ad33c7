"""Discovery of a pod's processes without its shim, or on systems without /proc and without a subreaper."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from backend_plugin.embedded.shim import portable_tree
from backend_plugin.embedded.shim.layout import MARK
from backend_plugin.embedded.shim.portable_tree import PortableTree
from e2e.embedded.running_pods import is_alive

UID = f"tree-{os.getpid()}"
# Start a child and a process that leaves the tree, print their pids, and wait.
FAMILY = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
leave = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], stdout=2, start_new_session=True).pid)"
near = subprocess.Popen(sleep, stdout=2)
far = subprocess.check_output([sys.executable, "-c", leave, *sleep], text=True)
print(near.pid, far, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def family() -> Iterator[tuple["subprocess.Popen[str]", int, int]]:
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK: f"{UID}/main"},
    ) as parent:
        assert parent.stdout is not None
        near, far = map(int, parent.stdout.readline().split())
        yield parent, near, far
        parent.kill()
    portable_tree.kill_leftovers([UID])


def test_orphaned_processes_are_found_after_their_container_ends(family):
    parent, near, far = family
    tree = PortableTree(UID)
    members = tree.map_members({parent.pid: "main"}, ["main", "other"])
    assert {pid: members[pid] for pid in (parent.pid, near)} == {parent.pid: "main", near: "main"}
    parent.kill()
    parent.wait()
    # The test process may have other children.
    left = tree.map_members({}, ["main"])
    assert {pid: left.get(pid) for pid in (near, far)} == {near: "main", far: "main"}
    portable_tree.send_signal([near, far], 9)
    assert until_dead(near, far)
    assert not {near, far} & tree.map_members({}, ["main"]).keys()


def test_processes_of_a_pod_are_found_by_their_environment(family):
    parent, near, far = family
    portable_tree.kill_leftovers([UID])
    parent.wait()
    assert until_dead(near, far)


def test_measured_memory_is_the_private_memory_of_processes():
    with subprocess.Popen(
        [sys.executable, "-c", "held = bytearray(50 << 20); print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as one:
        assert one.stdout is not None
        one.stdout.readline()
        assert 50 << 20 < PortableTree(UID).measure_memory([one.pid], 1 << 30) < 80 << 20
        one.kill()
    assert PortableTree(UID).measure_memory([one.pid], 1 << 30) == 0


def until_dead(*pids):
    deadline = time.monotonic() + 10
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(map(is_alive, pids))


PROGRAM = "env -i sh -c 'sleep 1000 & echo $!; wait' & wait"


@pytest.mark.linux
def test_descendants_with_an_empty_environment_are_killed_with_their_parents() -> None:
    environment = {"PATH": "/usr/bin:/bin", "KFPYTORCH_POD": "the-pod/pytorch"}
    with subprocess.Popen(["sh", "-c", PROGRAM], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        sleeping = psutil.Process(int(process.stdout.readline()))
        try:
            assert "KFPYTORCH_POD" not in sleeping.environ()
            portable_tree.kill_leftovers(["another-pod"])
            assert sleeping.is_running()
            portable_tree.kill_leftovers(["another-pod", "the-pod"])
            psutil.wait_procs([sleeping], timeout=30)
            assert not sleeping.is_running() or sleeping.status() == psutil.STATUS_ZOMBIE
        finally:
            if sleeping.is_running():
                sleeping.kill()
