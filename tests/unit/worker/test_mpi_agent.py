"""Tests of the agents of an MPI job, with scripts in place of mpirun and sshd."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flytekitplugins.kfpytorch.worker import failure_file, mpi_agent, mpi_rank

if TYPE_CHECKING:
    from kfpytorch_common.causes import Failure

Install = Callable[[str, str], None]
RULE = "-" * 74
NOTICED = "noticed that process rank 1 with PID 9596 on node"
ENDED = "  Process name: {}\n  Exit code:    3\n"
ON_ANOTHER = "rank 1 failed on another node, with exit code 3"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def write(name: str, script: str) -> None:
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o700)

    return write


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "id_rsa").write_text("private")
    (folder / "id_rsa.pub").write_text("ssh public")
    monkeypatch.setattr(mpi_agent, "MPI_SSH_DIRECTORY", str(folder))


def build_node(folder: Path, *, is_launcher: bool) -> mpi_agent.MpiNode:
    (folder / "0").mkdir(parents=True)
    places = [{"directory": str(folder / "0")}]
    return mpi_agent.MpiNode(str(folder), places=places, total=1, hostfile="", is_launcher=is_launcher)


def test_rank_imports_the_modules_of_its_own_node(tmp_path: Path, install: Install) -> None:
    modules = tmp_path / "modules"
    package = modules.joinpath(*mpi_rank.__name__.split(".")[:-1])
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()
    (package / "mpi_rank.py").write_text(f"def main(): open({str(tmp_path / 'done')!r}, 'w').close()")
    other = tmp_path / "other"
    other.mkdir()
    (other / mpi_rank.NODE_FILE).write_text(json.dumps({"path": [str(modules), *sys.path]}))
    # Without site, no import hook of an editable installation precedes the module path.
    install(
        "mpirun",
        f'while [ "$1" != -np ]; do shift; done; shift 3; export {mpi_rank.DIRECTORY}={other}\n'
        f'exec {sys.executable} -S "$@"',
    )
    assert mpi_agent._run_launcher(build_node(tmp_path / "node", is_launcher=True)) == []
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        (f"{RULE}\nThere are not enough slots\n\n{RULE}\n", 3, (None, "There are not enough slots", 3)),
        (f"mpirun {NOTICED} j-node-0-0 exited on signal 9 (Killed).\n", 137, (1, None, -9)),
        (f"prterun {NOTICED} vm exited on\nsignal 9 (Killed).\n", 137, (1, None, -9)),
        (ENDED.format("[[18740,1],1]"), 3, (None, ON_ANOTHER, 3)),
        (ENDED.format("[prterun-vm-9667@1,1]"), 3, (None, ON_ANOTHER, 3)),
    ],
    ids=["slots", "signal", "signal of Open MPI 5", "exit", "exit of Open MPI 5"],
)
def test_message_of_mpirun_names_the_problem_or_the_rank(tmp_path, install, text, code, expected) -> None:
    (tmp_path / "said").write_text(text)
    install("mpirun", f"cat {tmp_path}/said >&2; exit {code}")
    (failure,) = mpi_agent._run_launcher(build_node(tmp_path / "node", is_launcher=True))
    rank, message, exit_code = expected
    assert (failure.rank, failure.message, failure.exit_code) == (rank, message or failure.message, exit_code)
    assert (failure.exception == "MpirunFailed") is (message is not None)


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("hostfile", ["", "hosts"])
def test_hosts_and_interface_are_given_in_the_form_that_open_mpi_5_reads(tmp_path, install, hostfile) -> None:
    file = str(tmp_path / hostfile) if hostfile else ""
    if file:
        Path(file).write_text("127.0.0.1 slots=1\n")
    install("mpirun", f'echo "$OMPI_MCA_oob_tcp_if_include" "$@" > {tmp_path}/said')
    node = replace(build_node(tmp_path / "node", is_launcher=True), hostfile=file)
    assert mpi_agent._run_launcher(node) == []
    options = (tmp_path / "said").read_text()
    assert "oob_tcp_if_include" not in options
    assert (f"--hostfile {file}" in options) is bool(file)
    assert options.startswith("lo ") is (not file and sys.platform == "linux")


@pytest.fixture
def node(tmp_path: Path, install: Install, keys: None, monkeypatch: pytest.MonkeyPatch) -> mpi_agent.MpiNode:
    """A node with an sshd that only waits."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    install("sshd", "exec sleep 60")
    return build_node(tmp_path / "node", is_launcher=False)


def end_rank(node: mpi_agent.MpiNode, parent: int | None = None) -> Path:
    """Write the file of a rank that has ended; so has its parent by default."""
    with subprocess.Popen(["true"]) as ended:
        pass
    directory = Path(node.places[0]["directory"])
    process = {"rank": 2, "pid": ended.pid, "parent": parent or ended.pid}
    (directory / mpi_rank.PROCESS_FILE).write_text(json.dumps(process))
    return directory


def test_node_serves_mpirun_until_all_ranks_of_the_job_have_ended(node, monkeypatch) -> None:
    monkeypatch.setattr(mpi_agent, "_LONGEST_END", 0.0)
    daemon = subprocess.Popen(["sleep", "60"])
    failure_file.write_exit(end_rank(node, daemon.pid), failure_file.WorkerIdentity("here", 2, 0))
    found: list[list[Failure]] = []
    agent = threading.Thread(target=lambda: found.append(mpi_agent._run_node(node)), daemon=True)
    agent.start()
    try:
        agent.join(1.0)
        assert agent.is_alive()
    finally:
        daemon.send_signal(signal.SIGKILL)
    agent.join(10.0)  # The daemon is not waited for, so that its process id still exists.
    daemon.wait()
    assert found == [[]]


def test_node_with_stopped_ranks_lets_the_cause_be_reported_first(node, monkeypatch) -> None:
    monkeypatch.setattr(mpi_agent, "_REPORT_SECONDS", 1.0)
    end_rank(node)
    began = time.monotonic()
    (failure,) = mpi_agent._run_node(node)
    assert (failure.rank, failure.stopped) == (2, True)
    assert time.monotonic() - began >= 1.0


def test_launcher_waits_until_its_name_has_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [OSError("no such name"), "192.0.2.1", "127.0.0.1"]

    def resolve(host: str, *_: object, **__: object) -> list[Any]:
        assert host == "launcher"
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (answer, 0))]

    monkeypatch.setattr(mpi_agent, "_TICK", 0.0)
    monkeypatch.setattr(mpi_agent, "_is_open", lambda host: host == "node")
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    mpi_agent._wait_for_nodes(["launcher", "node"])
    assert answers == []
