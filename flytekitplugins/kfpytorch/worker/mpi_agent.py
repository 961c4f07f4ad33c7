"""The agent of one node of an MPI job: it runs mpirun in the launcher, and sshd in the other nodes."""

import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flytekitplugins.kfpytorch.worker import failure_file, mpi_rank
from kfpytorch_common.causes import Failure
from kfpytorch_common.forkserver.child import ChildStart, build_interpreter_command
from kfpytorch_common.frameworks import MPI_SSH_DIRECTORY, MPI_SSH_PORT

_LONGEST_JOIN: Final = 900.0
"""Maximum seconds that the launcher waits for the other nodes, which may have to pull their images first."""
_LONGEST_NAME: Final = 60.0
_LONGEST_END: Final = 10.0
"""Maximum seconds that a node waits for the end of its mpirun daemon after one of its ranks has failed."""
_REPORT_SECONDS: Final = 10.0
"""Seconds that a node waits if its ranks were only stopped, so that the node with the failure ends first."""
_TICK: Final = 0.2
# Open MPI 5 wraps its messages, so a line end can be between any two words.
_SIGNALED: Final = re.compile(
    r"process\s+rank\s+(\d{1,9})\s+with\s+PID\s+\d{1,9}\s+on\s+node\s+\S{1,300}\s+exited\s+on\s+signal\s+(\d{1,3})"
)
_FIRST_FAILURE: Final = re.compile(r"Process name: \[\S{1,300},(\d{1,9})\]\s+Exit code:\s+(\d{1,3})")
_MOST_LINES: Final = 40
_RANK: Final = f"""\
import json, os, sys
with open(os.path.join(os.environ[{mpi_rank.DIRECTORY!r}], {mpi_rank.NODE_FILE!r})) as file:
    sys.path[:] = json.load(file)["path"]
from {mpi_rank.__name__} import main
main()
"""
"""The Python code that mpirun runs for each rank. It sets `sys.path` to that of the agent of its own node."""


@dataclass(frozen=True)
class MpiNode:
    """The settings of the agent of a node of an MPI job."""

    directory: str
    places: list[dict[str, Any]]
    """The fields of a `replica.WorkerContext` for each rank of the node."""
    total: int
    hostfile: str
    """The path of the file with the names of the nodes; empty if all ranks are on this machine."""
    is_launcher: bool


class _Stopped(BaseException):
    """The agent received a signal that stops it. The signal handler raises this exception."""


def main(start: ChildStart) -> int:
    """Run the agent of an MPI node, in a child of the fork server, and return its exit code."""
    node = MpiNode(**start.args)
    directory = Path(node.directory)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _raise_stopped)
    _write_node(node, start.fds)
    try:
        failures = _run_launcher(node) if node.is_launcher else _run_node(node)
    except _Stopped:
        return 128 + signal.SIGTERM
    folders = [Path(place["directory"]) for place in node.places]
    ends = [failure_file.read_failure(folder, failure_file.ENDED_FILE_NAME) for folder in folders]
    failure_file.write_terminations(directory, failures, filter(None, ends))
    return 1 if failures else 0


def _raise_stopped(*_: object) -> None:
    raise _Stopped


def _write_node(node: MpiNode, streams: Sequence[int]) -> None:
    values = {
        "agent": os.getpid(),
        "streams": list(streams),
        "places": node.places,
        "env": dict(os.environ),
        "cwd": str(Path.cwd()),
        "path": sys.path,
        "argv": sys.argv,
    }
    (Path(node.directory) / mpi_rank.NODE_FILE).write_text(json.dumps(values))


def _run_launcher(node: MpiNode) -> list[Failure]:
    options = _build_host_options(node)
    command = [
        *("mpirun", "--allow-run-as-root", "--bind-to", "none", *options, "-np", str(node.total)),
        *build_interpreter_command(_RANK),
    ]
    env = {**os.environ, mpi_rank.DIRECTORY: node.directory}
    if not node.hostfile and sys.platform == "linux":
        # Only Open MPI 4 reads this variable. Open MPI 5 does not accept the loopback interface.
        env["OMPI_MCA_oob_tcp_if_include"] = "lo"
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        try:
            lines = _forward_lines(process.stderr or ())
            code = process.wait()
        except _Stopped:
            process.terminate()
            process.wait()
            raise
    return _find_launcher_failures(node, code, lines) if code else []


def _forward_lines(stream: Iterable[str]) -> Sequence[str]:
    """Copy the output of mpirun to standard error, and return its last lines, except separator lines."""
    last: deque[str] = deque(maxlen=_MOST_LINES)
    for line in stream:
        sys.stderr.write(line)
        if line.strip(" -\n"):
            last.append(line.rstrip())
    return last


def _build_host_options(node: MpiNode) -> Sequence[str]:
    if not node.hostfile:
        return ("--oversubscribe", "--mca", "btl", "self,vader")
    _wait_for_nodes(
        [line.split()[0] for line in Path(node.hostfile).read_text().splitlines() if line.strip()]
    )
    key, known = _copy_key(Path(node.directory))
    ssh = (
        f"-p {MPI_SSH_PORT} -i {key} "
        f"-o UserKnownHostsFile={known} -o StrictHostKeyChecking=yes -o BatchMode=yes "
        "-o LogLevel=ERROR -o IdentitiesOnly=yes"
    )
    # The launcher connects to all nodes itself, because the path of its key does not exist on other nodes.
    options = ("--mca", "plm_rsh_args", ssh, "--mca", "plm_rsh_no_tree_spawn", "1")
    # Open MPI 5 needs the option --hostfile, because it does not read the variable that Trainer sets.
    return ("--hostfile", node.hostfile, *options)


def _wait_for_nodes(hosts: Sequence[str]) -> None:
    """Wait until the other nodes accept connections and `hosts[0]` resolves to this node.

    Both waits have a timeout, after which the function continues without an error.
    """
    deadline = time.monotonic() + _LONGEST_JOIN
    own, *others = hosts
    for host in others:
        while time.monotonic() < deadline and not _is_open(host):
            time.sleep(_TICK)
    # If mpirun did not recognize the name of its own node, it would start a daemon there through ssh.
    deadline = time.monotonic() + _LONGEST_NAME
    while time.monotonic() < deadline and not _is_this_machine(own):
        time.sleep(_TICK)


def _is_this_machine(host: str) -> bool:
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as trial:
                trial.bind(address)
    except OSError:
        return False
    return True


def _is_open(host: str) -> bool:
    try:
        with socket.create_connection((host, MPI_SSH_PORT), timeout=1.0):
            return True
    except OSError:
        return False


def _copy_key(directory: Path) -> tuple[Path, Path]:
    key, known = directory / "id", directory / "known_hosts"
    key.touch(mode=0o600)
    key.write_bytes(Path(MPI_SSH_DIRECTORY, "id_rsa").read_bytes())
    public = Path(MPI_SSH_DIRECTORY, "id_rsa.pub").read_text().split()
    known.write_text(f"* {public[0]} {public[1]}\n")
    return key, known


def _run_node(node: MpiNode) -> list[Failure]:
    """Run sshd until the ranks of this node have ended. mpirun starts these ranks through sshd.

    Return the failures of the ranks.
    """
    directory = Path(node.directory)
    with subprocess.Popen([_find_sshd(), "-D", "-e", "-f", str(_write_sshd_config(directory))]) as process:
        try:
            _wait_for_ranks(node, process)
        finally:
            process.terminate()
    if not _list_processes(node):
        return [_build_failure("SshdEnded", f"sshd ended with exit code {process.returncode}")]
    failures = _find_rank_failures(node)
    if failures and all(each.stopped for each in failures):
        time.sleep(_REPORT_SECONDS)
    return failures


def _wait_for_ranks(node: MpiNode, sshd: subprocess.Popen[bytes]) -> None:
    """Wait until the ranks of this node have ended, and then until mpirun's daemon on this node has ended.

    If a rank failed, wait at most 10 s for the daemon. Return immediately if `sshd` ends.
    """
    _wait_while(sshd, lambda: not _have_ended(node), math.inf)
    # After a success here, wait without a limit: ranks on other nodes may still run, and the end of this
    # node would end them.
    deadline = time.monotonic() + _LONGEST_END if _find_rank_failures(node) else math.inf
    # The daemon is the parent of the ranks.
    _wait_while(sshd, lambda: any(_is_running(each["parent"]) for each in _list_processes(node)), deadline)


def _wait_while(sshd: subprocess.Popen[bytes], condition: Callable[[], bool], deadline: float) -> None:
    while sshd.poll() is None and condition() and time.monotonic() < deadline:
        time.sleep(_TICK)


def _find_sshd() -> str:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    found = shutil.which("sshd", path=path)
    if found is None:
        message = "the image has no sshd, which mpirun needs; install openssh-server in the image"
        raise FileNotFoundError(message)
    return found


def _write_sshd_config(directory: Path) -> Path:
    key, _ = _copy_key(directory)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(parents=True, exist_ok=True)
    names = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "OPAL_PREFIX")
    env = {name: os.environ[name] for name in names if name in os.environ}
    variables = " ".join(
        f'"{name}={value}"' for name, value in {**env, mpi_rank.DIRECTORY: str(directory)}.items()
    )
    config = directory / "sshd_config"
    lines = (
        f"Port {MPI_SSH_PORT}",
        f"HostKey {key}",
        f"AuthorizedKeysFile {MPI_SSH_DIRECTORY}/authorized_keys",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        *("StrictModes no", "UsePAM no", "PidFile none", "LogLevel ERROR"),
        f"SetEnv {variables}",
    )
    config.write_text("".join(f"{line}\n" for line in lines))
    return config


def _have_ended(node: MpiNode) -> bool:
    """True if all ranks of the node have ended, or if one of them has failed."""
    started = _list_processes(node)
    if any(Path(place["directory"], failure_file.FILE_NAME).exists() for place in node.places):
        return True
    return len(started) == len(node.places) and not any(_is_running(each["pid"]) for each in started)


def _list_processes(node: MpiNode) -> list[Mapping[str, int]]:
    return [*filter(None, map(_read_process, node.places))]


def _read_process(place: Mapping[str, Any]) -> Mapping[str, int] | None:
    path = Path(place["directory"], mpi_rank.PROCESS_FILE)
    return json.loads(path.read_bytes()) if path.exists() else None


def _is_running(pid: int) -> bool:
    """True if the process exists and is not a zombie. The daemon of mpirun may remain as a zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return status.rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])


def _find_launcher_failures(node: MpiNode, code: int, lines: Sequence[str]) -> list[Failure]:
    failures = _find_rank_failures(node)
    for rank, number in _SIGNALED.findall("\n".join(lines)):
        failures = [each for each in failures if each.rank != int(rank)]
        failures.append(_build_failure("", "", rank=int(rank), exit_code=-int(number)))
    if all(each.stopped for each in failures):
        if node.hostfile:  # The end of the launcher ends all other nodes.
            time.sleep(_REPORT_SECONDS)
        message = "\n".join(lines)
        if first := _FIRST_FAILURE.search(message):
            message = f"rank {first[1]} failed on another node, with exit code {first[2]}"
        failures.append(_build_failure("MpirunFailed", message or "no message", exit_code=code))
    return failures


def _find_rank_failures(node: MpiNode) -> list[Failure]:
    """Return a failure for each started rank of this node that has not recorded an exit with code 0.

    For a rank with a failure file, this is the failure in the file, otherwise a termination by SIGTERM.
    """
    failures = []
    for place in node.places:
        directory, state = Path(place["directory"]), _read_process(place)
        if state is not None and not (directory / failure_file.ENDED_FILE_NAME).exists():
            known = _build_failure("", "", rank=state["rank"], exit_code=-signal.SIGTERM, stopped=True)
            failures.append(failure_file.get_process_failure(directory, known))
    return failures


def _build_failure(
    exception: str, message: str, *, exit_code: int = 1, rank: int | None = None, stopped: bool = False
) -> Failure:
    return Failure(
        rank=rank,
        replica="mpirun",
        exit_code=exit_code,
        time_ns=time.time_ns(),
        exception=exception,
        message=message,
        stopped=stopped,
    )
