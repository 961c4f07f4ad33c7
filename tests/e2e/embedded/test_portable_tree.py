"""Discovery of a pod's processes without its shim, or on systems without /proc and without a subreaper."""

import os
import subprocess
import sys
import time

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
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
leave = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], stdout=2, start_new_session=True).pid)"
near = subprocess.Popen(sleep, stdout=2)
far = subprocess.check_output([sys.executable, "-c", leave, *sleep], text=True)
print(near.pid, far, flush=True)
sys.stdin.read()
"""
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}


def test_orphaned_processes_are_found_after_their_container_ends():
    environment = {**os.environ, MARK: f"{UID}/main"}
    tree = PortableTree(UID)
    with subprocess.Popen([sys.executable, "-c", FAMILY], env=environment, **PIPES) as parent:
        near, far = map(int, parent.stdout.readline().split())
        members = tree.map_members({parent.pid: "main"}, ["main", "other"])
        assert {pid: members[pid] for pid in (parent.pid, near)} == {parent.pid: "main", near: "main"}
        parent.kill()
    # The test process may have other children.
    left = tree.map_members({}, ["main"])
    assert {pid: left.get(pid) for pid in (near, far)} == {near: "main", far: "main"}
    portable_tree.send_signal([near, far], 9)
    assert until_dead(near, far)
    assert not {near, far} & tree.map_members({}, ["main"]).keys()


def test_measured_memory_is_the_private_memory_of_processes():
    hold = "held = bytearray(50 << 20); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", hold], **PIPES) as one:
        one.stdout.readline()
        assert 50 << 20 < PortableTree(UID).measure_memory([one.pid], 1 << 30) < 80 << 20
        one.kill()
    assert PortableTree(UID).measure_memory([one.pid], 1 << 30) == 0


def until_dead(*pids):
    deadline = time.monotonic() + 10
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(map(is_alive, pids))


@pytest.mark.linux
def test_leftovers_of_a_pod_are_killed_with_descendants_of_an_empty_environment():
    program = "env -i sh -c 'sleep 60 & echo $!; wait' & wait"
    environment = {"PATH": "/usr/bin:/bin", MARK: "the-pod/pytorch"}
    with subprocess.Popen(["sh", "-c", program], env=environment, **PIPES) as process:
        sleeping = psutil.Process(int(process.stdout.readline()))
        assert MARK not in sleeping.environ()
        portable_tree.kill_leftovers(["another-pod"])
        assert is_alive(sleeping.pid)
        portable_tree.kill_leftovers(["another-pod", "the-pod"])
        assert until_dead(sleeping.pid)
