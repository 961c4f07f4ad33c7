"""Pods of a killed server end with it or are adopted later, and none starts twice."""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.embedded.running_pods import get_terminated, is_alive, marked, node, pod, python, shell, shim_of, uid

SERVER = Path(__file__).with_name("serve_pods.py")
PATIENCE = 20


class Server(subprocess.Popen):
    def __init__(self, root: Path, *pods: dict, durable: bool = False) -> None:
        described = root / "pods.json"
        described.write_text(json.dumps(pods))
        command = [sys.executable, SERVER, root / "pods", described, "durable" if durable else "not"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        super().__init__(command, cwd=SERVER.parents[3], **pipes)

    def read_messages(self) -> Iterator[tuple[str, dict]]:
        yield from map(json.loads, self.stdout)

    def wait_until(self, message: str) -> None:
        """Wait for the message ``adopting`` or ``ready``."""
        next(name for name, _ in self.read_messages() if name == message)

    def phase(self, uid: str, phase: str) -> dict:
        """Return the first status of this pod with this phase."""
        messages = (status for name, status in self.read_messages() if name == uid and status)
        return next(status for status in messages if status["phase"] == phase)

    def kill(self) -> None:
        super().kill()
        self.wait()


def all_dead(root: Path) -> bool:
    """True if no process of a pod remains after a short wait."""
    deadline = time.monotonic() + PATIENCE
    while marked(root / "pods") and time.monotonic() < deadline:
        time.sleep(0.01)
    return marked(root / "pods") == []


def kill_server_and_shim(root: Path, of: dict) -> list[int]:
    """Start a durable pod with two processes, and kill all others. Return the processes of the pod."""
    with Server(root, of, durable=True) as server:
        server.phase(uid(of), "Running")
        while len(alive := marked(root / "pods")) < 2:
            time.sleep(0.01)
        shim = shim_of(min(alive))
        server.kill()
        os.kill(shim, signal.SIGKILL)
    return alive


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Kill the remaining processes of durable pods."""
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
        assert status["reason"] == "NodeLost"
        assert get_terminated(status)["exitCode"] == 137


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
    assert await kubelet.lines(of, follow=True) == ["said"]
    assert marked(kubelet.root) == []
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
    main = min(marked(kubelet.root))
    os.kill(shim_of(main), signal.SIGKILL)
    status = await kubelet.phase(of, "Failed")
    terminated = get_terminated(status)
    assert (status["reason"], terminated["exitCode"]) == ("NodeLost", 137)
    assert terminated["reason"] == "ContainerStatusUnknown"
    assert marked(kubelet.root) == []

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
