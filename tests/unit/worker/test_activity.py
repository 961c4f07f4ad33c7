"""Blocked ranks are distinguished from ranks that use the processor or write."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flytekitplugins.kfpytorch.worker.activity import IdleWatch
from flytekitplugins.kfpytorch.worker.console import Console
from flytekitplugins.kfpytorch.worker.launch_settings import ProcessSpec
from flytekitplugins.kfpytorch.worker.process_supervisor import ProcessSupervisor
from kfpytorch_common.forkserver import client

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")

# A thread that waits briefly again and again, as gloo has one, is not progress.
BLOCKED = """
import threading, time
def wait():
    while True: time.sleep(0.01)
threading.Thread(target=wait, daemon=True).start()
print("ready", flush=True)
input()
"""
COMPUTES = "print('ready', flush=True)\nwhile True: pass"
# The main thread waits for a thread that saves a file.
SAVES = """
import os, threading
def save():
    while True: os.write(file, bytes(1000))
file = os.open(os.devnull, os.O_WRONLY)
saving = threading.Thread(target=save)
saving.start()
print("ready", flush=True)
saving.join()
"""
UPLOADS = """
import subprocess, sys
print("ready", flush=True)
subprocess.run([sys.executable, "-c", "while True: pass"])
"""


@pytest.fixture
def rank(request: pytest.FixtureRequest) -> Iterator[int]:
    """The process id of a rank that runs the program of the test."""
    with subprocess.Popen(
        [sys.executable, "-c", request.param],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=True)


def becomes_idle(rank: int, rounds: int) -> bool:
    """True if two observations of the rank with a difference of two seconds are equal."""
    watch = IdleWatch()
    return any(watch.is_idle([rank], 2.0 * now) for now in range(rounds))


@pytest.mark.parametrize("rank", [BLOCKED], indirect=True, ids=["blocked"])
def test_a_rank_whose_main_thread_is_blocked_is_idle(rank: int) -> None:
    assert becomes_idle(rank, rounds=100)


@pytest.mark.parametrize(
    "rank", [COMPUTES, SAVES, UPLOADS], indirect=True, ids=["computes", "saves", "uploads"]
)
def test_a_rank_that_makes_progress_is_not_idle(rank: int) -> None:
    watch = IdleWatch()
    watch.is_idle([rank], 0.0)
    first = watch.last
    while watch.last == first:  # Each call observes the rank at the same time.
        watch.is_idle([rank], 0.5)
    assert not watch.is_idle([rank], 1.0)


def test_no_rank_is_not_idle() -> None:
    assert not becomes_idle(-1, rounds=3)


STUCK = """
import signal, time
from pathlib import Path

def blocks(start):
    signal.signal(signal.SIGTERM, lambda *_: None)
    Path(start.args["ready"]).touch()
    time.sleep(3600)

def fails(start):
    while not Path(start.args["ready"]).exists():
        time.sleep(0.01)
    return 3
"""


def test_a_blocked_rank_is_killed_although_its_time_is_not_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    monkeypatch.syspath_prepend(tmp_path)
    console, ends, processes = Console(None, all_ranks=False), {}, []
    for name in ("blocks", "fails"):
        slot, ends[len(processes)] = console.open_slot(name)
        args = {"ready": str(tmp_path / "ready")}
        processes.append(
            ProcessSpec(
                name=name,
                target=f"stuck:{name}",
                args=args,
                env=dict(os.environ),
                slots=(slot.number,),
                patience=600,  # Longer than the timeout of this test.
            )
        )
    server = client.start_fresh_server(())
    with contextlib.ExitStack() as ending:
        ending.callback(server.stop)
        members = ProcessSupervisor(server.client, console).run(processes, ends)
    assert [(each.code, each.stopped) for each in members] == [(None, True), (3, False)]
