"""Pods of a killed server or shim, or of a stopped shim, end or are adopted, and none starts twice."""

import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from backend_plugin.embedded.shim import portable_tree
from backend_plugin.embedded.shim.layout import MARK
from backend_plugin.embedded.shim.portable_tree import PortableTree
from e2e.embedded.running_pods import get_terminated, is_alive, marked, node, pod, python, shell, shim_of, uid

SERVER = Path(__file__).with_name("serve_pods.py")
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}


class Server(subprocess.Popen):
    def __init__(self, root, *pods, durable=False):
        described = root / "pods.json"
        described.write_text(json.dumps(pods))
        command = [sys.executable, SERVER, root / "pods", described, "durable" if durable else "not"]
        super().__init__(command, cwd=SERVER.parents[3], **PIPES)

    def read_messages(self):
        yield from map(json.loads, self.stdout)

    def wait_until(self, message):
        """Wait for the message ``adopting`` or ``ready``."""
        next(name for name, _ in self.read_messages() if name == message)

    def phase(self, uid, phase):
        messages = (status for name, status in self.read_messages() if name == uid and status)
        return next(status for status in messages if status["phase"] == phase)

    def kill(self):
        super().kill()
        self.wait()


def all_dead(root):
    """True if no process of a pod remains after a short wait."""
    deadline = time.monotonic() + 20
    while marked(root / "pods") and time.monotonic() < deadline:
        time.sleep(0.01)
    return marked(root / "pods") == []


def kill_server_and_shim(root, of):
    """Start a durable pod with two processes, and kill all others. Return the processes of the pod."""
    with Server(root, of, durable=True) as server:
        server.phase(uid(of), "Running")
        while len(alive := marked(root / "pods")) < 2:
            time.sleep(0.01)
        shim = shim_of(min(alive))
        server.kill()
        os.kill(shim, signal.SIGKILL)
    return alive


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(autouse=True)
def nothing_left(tmp_path):
    yield
    for each in marked(tmp_path / "pods"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def test_pods_are_lost_when_their_server_is_killed(tmp_path):
    of = pod(shell("(setsid sleep 600 &); sleep 600"), policy="Always")
    with Server(tmp_path, of) as first:
        first.phase(uid(of), "Running")
        assert marked(tmp_path / "pods") != []
        first.kill()
    assert all_dead(tmp_path)
    with Server(tmp_path, of) as second:
        status = second.phase(uid(of), "Failed")
        assert (status["reason"], get_terminated(status)["exitCode"]) == ("NodeLost", 137)


def test_durable_pod_may_end_before_the_next_server_starts(tmp_path):
    of = pod(shell(f"while ! test -e {tmp_path}/go; do sleep 0.01; done; exit 3"))
    with Server(tmp_path, of, durable=True) as first:
        first.phase(uid(of), "Running")
    assert marked(tmp_path / "pods") != []
    (tmp_path / "go").touch()
    assert all_dead(tmp_path)
    with Server(tmp_path, of, durable=True) as second:
        status = second.phase(uid(of), "Failed")
    assert (status.get("reason"), get_terminated(status)["exitCode"]) == (None, 3)


async def test_adopted_pod_can_be_terminated_logged_and_removed(tmp_path, kubelet):
    of = pod(shell("trap 'echo bye; exit 0' TERM; echo one; while :; do sleep 0.01; done"))
    with Server(tmp_path, of, durable=True) as first:
        first.phase(uid(of), "Running")
    await kubelet.kubelet.adopt_pods([of])
    following = asyncio.create_task(kubelet.lines(of, follow=True))
    await kubelet.phase(of, "Running")
    status = await kubelet.terminated(of, 60)
    assert (status["phase"], await following) == ("Succeeded", ["one", "bye"])
    await kubelet.kubelet.remove_pod(uid(of))
    assert list((tmp_path / "pods").iterdir()) == []


def test_unlisted_pods_are_killed_and_removed_at_start(tmp_path):
    of, done = pod(shell("sleep 600")), pod(shell("true"))
    with Server(tmp_path, of, done, durable=True) as first:
        first.phase(uid(of), "Running")
        first.kill()
    with Server(tmp_path, durable=True) as second:
        second.wait_until("ready")
        assert marked(tmp_path / "pods") == list((tmp_path / "pods").iterdir()) == []


async def test_adopted_pod_with_failed_status_is_killed_without_a_report(tmp_path, kubelet):
    marker = tmp_path / "said"
    of = pod(shell(f"echo said; touch {marker}; sleep 600"))
    with Server(tmp_path, of, durable=True) as first:
        while not marker.exists():  # The process starts before it writes.
            time.sleep(0.01)
        first.kill()
    await kubelet.kubelet.adopt_pods([{**of, "status": {"phase": "Failed"}}])
    assert (await kubelet.lines(of, follow=True), marked(kubelet.root)) == (["said"], [])
    assert kubelet.reported.statuses == {}


def test_processes_of_an_unlisted_pod_without_shim_are_killed(tmp_path):
    alive = kill_server_and_shim(tmp_path, pod(python("import os, time; os.fork(); time.sleep(600)")))
    with Server(tmp_path, durable=True) as second:
        second.wait_until("ready")
        assert [is_alive(each) for each in alive] == [False, False]


async def test_pod_of_a_killed_shim_is_lost_with_all_processes(kubelet):
    of = pod(python("import os, time; os.fork(); os.setsid() if os.getppid() == 1 else None; print(os.getppid()); time.sleep(600)"), policy="Always")  # fmt: skip  # noqa: E501
    await kubelet.run(of)
    while len(await kubelet.lines(of)) < 2:
        await asyncio.sleep(0.01)
    os.kill(shim_of(min(marked(kubelet.root))), signal.SIGKILL)
    status = await kubelet.phase(of, "Failed")
    terminated = get_terminated(status)
    assert (status["reason"], terminated["exitCode"]) == ("NodeLost", 137)
    assert (terminated["reason"], marked(kubelet.root)) == ("ContainerStatusUnknown", [])
    await kubelet.kubelet.remove_pod(uid(of))


def test_pod_is_lost_when_shim_and_server_are_killed(tmp_path):
    starts = f"import os, time; open('{tmp_path}/starts', 'a').write('1\\n'); os.fork(); time.sleep(600)"
    of = pod(python(starts))
    kill_server_and_shim(tmp_path, of)
    with Server(tmp_path, of, durable=True) as second:
        assert second.phase(uid(of), "Failed")["reason"] == "NodeLost"
        assert all_dead(tmp_path)
    with Server(tmp_path, of, durable=True) as third:
        assert third.phase(uid(of), "Failed")["reason"] == "NodeLost"
    assert len(lines(tmp_path / "starts")) == 1


async def test_adopted_pod_without_files_is_lost_unless_it_ended(tmp_path):
    status = {"phase": "Running", "containerStatuses": [{"name": "main"}]}
    ran = {**pod(shell(f"echo 1 >> {tmp_path}/starts")), "status": status}
    over = {**pod(shell(f"echo 1 >> {tmp_path}/starts")), "status": {**status, "phase": "Succeeded"}}
    async with node(tmp_path) as kubelet:
        await kubelet.kubelet.adopt_pods([ran, over])
        assert (await kubelet.phase(ran, "Failed"))["reason"] == "NodeLost"
        assert uid(over) not in kubelet.reported.statuses
    assert len(lines(tmp_path / "starts")) == 0


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("rounds", [3, pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
def test_pods_start_once_although_servers_are_killed(tmp_path, durable, rounds):
    """Kill each server while it starts a pod, or soon afterwards."""
    dice = random.Random(7)
    pods = [
        pod(shell(f"echo {number} >> {tmp_path}/starts; sleep 0.3"), policy="OnFailure")
        for number in range(rounds)
    ]
    for number in range(rounds):
        with Server(tmp_path, *pods[: number + 1], durable=durable) as each:
            each.wait_until("adopting")
            time.sleep(dice.uniform(0, 0.1))
            each.kill()
    with Server(tmp_path, *pods, durable=durable) as last:
        ended = ends(last, {uid(each) for each in pods})
    started = lines(tmp_path / "starts")
    assert len(started) == len(set(started))
    if durable:
        assert (len(started), {each["phase"] for each in ended}) == (rounds, {"Succeeded"})
    else:
        assert all(each["phase"] == "Succeeded" or each["reason"] == "NodeLost" for each in ended)
    assert all_dead(tmp_path)


def ends(server, left):
    found = []
    while left:
        who, status = next(server.read_messages())
        if who in left and status["phase"] in ("Succeeded", "Failed"):
            left.discard(who)
            found.append(status)
    return found


IMPATIENT = {"shim_patience": 0.3}
impatient = pytest.mark.parametrize("options", [IMPATIENT], ids=["impatient"])


@contextlib.contextmanager
def no_more_files():
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
    assert (status["phase"], status["reason"], marked(kubelet.root)) == ("Failed", "NodeLost", [])


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
    async with node(tmp_path, durable=True, **IMPATIENT) as first:
        await stopped(first, of)
        await first.running(other)
        await first.kubelet.close()
        async with node(tmp_path, **IMPATIENT) as second:
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


def test_orphaned_processes_are_found_after_their_container_ends():
    environment = {**os.environ, MARK: f"{UID}/main"}
    tree = PortableTree(UID)
    with subprocess.Popen([sys.executable, "-c", FAMILY], env=environment, **PIPES) as parent:
        near, far = map(int, parent.stdout.readline().split())
        members = tree.map_members({parent.pid: "main"}, ["main", "other"])
        assert {pid: members[pid] for pid in (parent.pid, near)} == {parent.pid: "main", near: "main"}
        parent.kill()
    left = tree.map_members({}, ["main"])  # The test process may have other children.
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
