"""Ends of a server, its caller or a child leave no process and no directory."""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from processes import HERE, ForkCaller, all_gone, eventually

from kfpytorch_common.forkserver import client, launch


@pytest.mark.parametrize(
    ("to_group", "at_start"), [(signal.SIGKILL, signal.SIGKILL), (signal.SIGUSR1, signal.SIGTERM)]
)
def test_signal_reaches_the_whole_process_group(caller, to_group, at_start) -> None:
    child = caller.start("sleep_with_grandchild")
    pids = child.read_message()["pids"]
    caller.client.signal_group(child.number, to_group)
    assert child.code() == -to_group
    assert all_gone(*pids, within=2.0)
    for _ in range(4):
        child = caller.start("sleep")
        caller.client.signal_group(child.number, at_start)
        assert child.code() == -at_start


@pytest.mark.parametrize(
    ("target", "options"),
    [("sleep_with_grandchild", {}), ("agent", {"serve": True})],
    ids=["group", "children"],
)
def test_released_child_is_killed_with_its_processes(caller: ForkCaller, target: str, options: Any) -> None:
    child = caller.start(target, **options)
    pids = child.read_message()["pids"]
    caller.client.release(child.number)
    caller.client.wait_until_handled()
    assert all_gone(pids[0])
    # The server kills the children of a child before it handles the request.
    assert all_gone(*pids, within=0 if options else 1.0)


def test_child_can_be_released_right_after_its_start(caller):
    started = time.monotonic()
    for _ in range(4):
        child = caller.start("sleep")
        caller.client.release(child.number)
        caller.client.wait_until_handled()
        assert all_gone(child.pid)
    assert time.monotonic() - started < 8


def test_processes_of_an_ended_child_are_killed_on_release(caller):
    child = caller.start("sleep_with_grandchild")
    first, grandchild = child.read_message()["pids"]
    caller.client.signal_child(child.number, signal.SIGKILL)
    assert child.code() == -signal.SIGKILL
    assert not all_gone(grandchild)
    caller.client.release(child.number)
    assert all_gone(first, grandchild, within=2.0)


def test_children_of_a_child_are_killed_with_it(caller):
    child = caller.start("agent", serve=True)
    pids = child.read_message()["pids"]
    os.kill(child.pid, signal.SIGKILL)
    assert child.code() == -signal.SIGKILL
    assert all_gone(*pids, within=2.0)


def test_server_kills_all_processes_when_the_caller_disconnects(caller):
    pids = [pid for _ in range(2) for pid in caller.start("sleep_with_grandchild").read_message()["pids"]]
    pids += caller.start("agent", serve=True).read_message()["pids"]
    caller.server.stop()
    assert all_gone(caller.server.pid)
    assert all_gone(*pids, within=1.0)


def test_server_removes_scratch_directories_when_it_stops(caller, tmp_path):
    for name in ("one", "two", "never made"):
        caller.client.add_scratch(str(tmp_path / name))
    for name in ("one", "two", "not announced"):
        (tmp_path / name / "deep").mkdir(parents=True)
    caller.client.wait_until_handled()
    caller.server.stop()
    assert [path.name for path in tmp_path.iterdir()] == ["not announced"]


def test_killed_server_takes_its_children_along_and_the_caller_gets_an_error(caller):
    children = [caller.start("sleep") for _ in range(3)]
    for child in children:
        child.read_message()
    os.kill(caller.server.pid, signal.SIGKILL)
    with pytest.raises(client.ForkServerGone, match="killed for lack of memory"):
        caller.client.wait_for_exits(5.0)
    with pytest.raises(client.ForkServerGone):
        caller.start("sleep")
    assert all_gone(*(child.pid for child in children), within=2.0)


@pytest.mark.parametrize("kind", ["fresh", "forked"])
@pytest.mark.parametrize(
    "signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name
)
def test_killed_caller_leaves_no_process_and_no_directory(kind, signum, tmp_path) -> None:
    scratch = tmp_path / "scratch"
    command = [sys.executable, "-c", f"import targets; targets.caller({kind!r}, {str(scratch)!r})"]
    with subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, text=True) as process:
        pids = json.loads(process.stdout.readline())
        scratch.mkdir()
        process.send_signal(signum)
        assert all_gone(*pids, within=2.0)
    assert eventually(lambda: not scratch.exists(), 2.0)


def test_caller_killed_while_the_server_loads_leaves_no_directory(tmp_path):
    (tmp_path / "slow_to_load.py").write_text(
        'import os, time\nwhile os.getppid() == int(os.environ["CALLER"]): time.sleep(0.01)'
    )
    scratch, kept = tmp_path / "scratch", tmp_path / "kept"
    for directory in (scratch, kept):
        directory.mkdir()
    command = f"import targets; targets.register_and_die({str(scratch)!r}, {str(kept)!r})"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    died = subprocess.run([sys.executable, "-c", command], cwd=HERE, env=env, check=False)
    assert died.returncode == -signal.SIGKILL
    assert eventually(lambda: not scratch.exists(), 10.0)
    assert kept.exists()


def test_server_ignores_signals_of_the_terminal(caller):
    caller.client.wait_until_handled()  # Wait until the server serves requests.
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"):
        os.kill(caller.server.pid, getattr(signal, name))
    assert caller.start("end", {"how": "code", "code": 0}).code() == 0


def test_server_can_be_stopped_although_a_forked_process_has_its_descriptors(caller):
    pid = os.fork()  # A fork, as multiprocessing does, copies all descriptors.
    if pid == 0:
        time.sleep(4)
        os._exit(0)
    started = time.monotonic()
    caller.server.stop()
    seconds = time.monotonic() - started
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert seconds < 2


def test_server_can_be_stopped_while_it_loads_modules(tmp_path, monkeypatch):
    (tmp_path / "slow_to_load.py").write_text("import time; time.sleep(4)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    server = launch.start_fresh_server(["slow_to_load"])
    time.sleep(0.3)
    started = time.monotonic()
    server.stop()
    assert time.monotonic() - started < 2


def test_copy_of_a_server_in_a_forked_process_cannot_stop_it(caller):
    pid = os.fork()
    if pid == 0:
        suited = caller.server.is_suitable(caller.server.env)
        caller.server.stop()
        os._exit(1 if suited else 0)
    assert os.waitpid(pid, 0) == (pid, 0)
    assert caller.start("end", {"how": "code", "code": 0}).code() == 0
