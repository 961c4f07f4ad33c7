"""Pods end although their shims are stopped or absent, or the server cannot open files."""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import time

import psutil
import pytest

from backend_plugin.embedded.shim import portable_tree
from backend_plugin.embedded.shim.layout import MARK
from backend_plugin.embedded.shim.portable_tree import PortableTree
from e2e.embedded.running_pods import is_alive, marked, node, pod, python, shell, shim_of, uid

PATIENCE = {"shim_patience": 0.3}
impatient = pytest.mark.parametrize("options", [PATIENCE], ids=["impatient"])


@contextlib.contextmanager
def no_more_files():
    """Prevent this process from opening files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def stopped(kubelet, of):
    await kubelet.running(of)
    os.kill(shim_of(min(marked(kubelet.root))), signal.SIGSTOP)


@impatient
async def test_pod_of_a_stopped_shim_ends_after_its_grace_period(kubelet):
    of = pod(python("import os, time; os.fork(); os.setsid() if os.getppid() == 1 else 0; time.sleep(600)"))
    await stopped(kubelet, of)
    status = await kubelet.terminated(of, 0.1)
    assert (status["phase"], status["reason"]) == ("Failed", "NodeLost")
    assert marked(kubelet.root) == []


@pytest.mark.parametrize("how", ["lost", "forgotten", "left to the end"])
@impatient
async def test_stopped_shim_does_not_block_pod_removal_or_close(kubelet, how):
    of, other = pod(shell("sleep 600")), pod(shell("sleep 600"))
    await stopped(kubelet, of)
    await kubelet.run(other)
    if how == "lost":
        kubelet.kubelet.kill_pods([uid(of), uid(other)])
    if how == "forgotten":
        await kubelet.kubelet.remove_pod(uid(of))
        assert not (kubelet.root / uid(of)).exists()


async def test_only_the_stopped_shim_of_an_earlier_server_is_killed(tmp_path):
    of, other = pod(shell("sleep 600")), pod(shell("sleep 600"))

    async with node(tmp_path, durable=True, **PATIENCE) as first:
        await stopped(first, of)
        await first.running(other)
        await first.kubelet.close()
        async with node(tmp_path, **PATIENCE) as second:
            await second.kubelet.adopt_pods([of, other])
            # Another process with the pod's path in its arguments, which must survive.
            words = [sys.executable, "-c", "import time; time.sleep(600)", str(second.root / uid(of))]
            with subprocess.Popen(words) as reader:
                status = await second.terminated(of, 0)
                assert (status["phase"], status["reason"]) == ("Failed", "NodeLost")
                assert reader.poll() is None
                reader.kill()
            assert second.reported.statuses[uid(other)][-1]["phase"] == "Running"


@impatient
@pytest.mark.parametrize("how", ["terminate", "lose"])
async def test_pod_ends_although_open_files_are_exhausted(how, kubelet):
    of = pod(shell("sleep 600"))
    await kubelet.running(of)
    with no_more_files():
        if how == "terminate":
            await kubelet.kubelet.terminate_pod(uid(of), 0)
        else:
            kubelet.kubelet.kill_pods([uid(of)])
    while marked(kubelet.root):
        await asyncio.sleep(0.01)


async def test_pod_status_is_read_after_open_files_are_available(tmp_path, kubelet):
    of = pod(shell(f"while ! [ -e {tmp_path}/go ]; do sleep 0.01; done; exit 3"))
    await kubelet.running(of)
    (tmp_path / "go").touch()
    with no_more_files():
        await asyncio.sleep(0.5)
    status = await kubelet.phase(of, "Failed")
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


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
