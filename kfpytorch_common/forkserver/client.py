"""The caller's end of a fork server: start children, signal them, hear of their end."""

import atexit
import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kfpytorch_common import loaded_modules
from kfpytorch_common.forkserver import child, messages, server
from kfpytorch_common.held_signals import held

# Read once, when the server, torch, its libraries or the interpreter start: a fork cannot change them.
_READ_AT_IMPORT = (
    "ATEN_", "DYLD_", "FLYTE_KFPYTORCH_FORK", "FLYTE_SDK_LOGGING", "GOMP_", "KMP_", "LD_", "MALLOC_",
    "MKL_", "OMP_", "OPENBLAS_", "PYTHON", "PYTORCH_", "TORCH_",
)  # fmt: skip
_APPLIED_LATER = (
    "KMP_INIT_AT_FORK",  # torch sets it when it is imported.
    "OMP_NUM_THREADS", "PYTHONBREAKPOINT", "PYTHONPATH", "PYTHONUNBUFFERED", "TORCH_ELASTIC_",
    "TORCH_FR_", "TORCH_GLOO_", "TORCH_NCCL_",
)  # fmt: skip
_GONE = "the process that starts the workers is gone; it may have been killed for lack of memory"


class ServerGone(ConnectionError):
    """The fork server died (the kernel may have killed it for lack of memory)."""


def import_path() -> list[str]:
    """`sys.path`, and before it where this process found modules that are not on it any more.

    `pyflyte run` has the script's directory in front only while it loads the script.
    """
    path: list[str] = []
    for name, file in loaded_modules.list_files().items():
        if "." in name or name == "__main__":
            continue
        place = Path(file).parent
        root = str(place.parent if Path(file).stem == "__init__" else place)
        if root not in sys.path and root not in path and place.is_absolute():
            path.append(root)
    return [*path, *sys.path]


@dataclass(frozen=True)
class Job:
    """A process to start."""

    target: str
    """``module:function``; called with a `child.Start`, its result is the exit code."""
    args: Mapping[str, Any]
    """Plain JSON."""
    env: Mapping[str, str] | None
    """The whole environment; None keeps the server's."""
    serve: bool = False
    """Give the process a connection of its own to the server."""
    cwd: str = field(default_factory=os.getcwd)
    path: Sequence[str] = field(default_factory=import_path)
    argv: Sequence[str] = field(default_factory=lambda: list(sys.argv))


class Client:
    """A connection to a fork server."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._next = 0
        self._exits: list[tuple[int, int]] = []
        self._scratch: list[str] = []
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """For `select`: readable when there may be exits to collect."""
        return self._sock.fileno()

    def start(self, job: Job, fds: Sequence[int]) -> tuple[int, int]:
        """Start a process with `fds` as its standard streams (the first three) and extras.

        Returns:
            The number by which this client knows the child, and its process id.

        Raises:
            ServerGone: The server does not answer.
        """
        number, self._next = self._next, self._next + 1
        self._send({"op": "start", "child": number, **vars(job)}, fds)
        while True:
            message = self._receive()
            if message["op"] == "started":
                return number, message["pid"]

    def kill(self, number: int, signum: int) -> None:
        """Signal the child and all processes of its group; nothing if it has ended."""
        self._send({"op": "kill", "child": number, "signal": int(signum)})

    def poke(self, number: int, signum: int) -> None:
        """Signal the child alone, not the processes that it started; of an agent, its workers instead."""
        self._send({"op": "poke", "child": number, "signal": int(signum)})

    def release(self, number: int) -> None:
        """Kill what is left of the child's group and forget the child."""
        self._send({"op": "release", "child": number})

    def connect(self) -> "Client":
        """One more connection to the server, for a run that may be one of several at a time."""
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            self._send({"op": "connect"}, [theirs.fileno()])
        return Client(ours)

    def keep(self, path: str) -> None:
        """Leave a directory that was announced by `scratch`."""
        self._scratch.remove(path)
        self._send({"op": "keep", "path": path})

    def settle(self) -> None:
        """Wait until the server has carried out all that was asked."""
        self._send({"op": "settle"})
        while self._receive()["op"] != "settled":
            pass

    def scratch(self, path: str) -> None:
        """Have the directory removed when the caller is gone, however it went."""
        self._scratch.append(path)
        self._send({"op": "scratch", "path": path})

    def exits(self, timeout: float = 0.0) -> list[tuple[int, int]]:
        """Children that ended since the last call, with their exit codes; waits for the first.

        Args:
            timeout: The longest wait, in seconds.

        Raises:
            ServerGone: The server died.
        """
        while not self._exits and select.select([self._sock], [], [], timeout)[0]:
            self._receive()
        while select.select([self._sock], [], [], 0)[0]:
            self._receive()
        found, self._exits = self._exits, []
        return found

    def stop(self) -> None:
        """Tell the server to end, with all children, and hang up."""
        with contextlib.suppress(ServerGone):
            self._send({"op": "stop"})
        self.close()

    def remove_scratch(self) -> None:
        """Do what a server that was stopped while it loaded could not."""
        for path in self._scratch:
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Hang up: the server ends all children of this client."""
        self._sock.close()

    def _send(self, message: messages.Message, fds: Sequence[int] = ()) -> None:
        try:
            messages.send(self._sock, message, fds)
        except OSError as gone:
            raise ServerGone("the fork server does not answer") from gone

    def _receive(self) -> messages.Message:
        received = messages.receive(self._sock)
        if received is None:
            raise ServerGone(_GONE)
        message = received[0]
        if message["op"] == "exited":
            self._exits.append((message["child"], message["code"]))
        return message


@dataclass
class Server:
    """A running fork server and this process's connection to it."""

    client: Client
    pid: int
    env: Mapping[str, str]
    """The environment it was started with."""
    owner: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        atexit.register(self.stop)

    def suits(self, env: Mapping[str, str]) -> bool:
        """Whether a child of this server would be what an interpreter started with `env` is."""
        return self.owner == os.getpid() and self._alive() and at_import(self.env) == at_import(env)

    def stop(self) -> None:
        """End the server and its children, and wait until they are gone."""
        atexit.unregister(self.stop)
        if self.owner != os.getpid():
            return
        # While it loads it obeys the signal; then it ignores it, and obeys the message, which arrives
        # also when another process of ours has a copy of the socket.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        self.client.stop()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self.client.remove_scratch()

    def _alive(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            return os.waitpid(self.pid, os.WNOHANG)[0] == 0
        return False


def at_import(env: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that only a new interpreter can take up."""
    return {
        name: value
        for name, value in env.items()
        if name.startswith(_READ_AT_IMPORT) and not name.startswith(_APPLIED_LATER)
    }


def start_fresh(preload: Sequence[str]) -> Server:
    """A server in a new interpreter that loads `preload` and nothing else."""
    ours, theirs = socket.socketpair()
    home = str(Path(__file__).resolve().parents[2])
    code = (
        # An interpreter with -c looks into the working directory first, where a user's random.py may be.
        f"import sys; sys.path[:] = [*filter(None, sys.path), {home!r}]\n"
        "from kfpytorch_common.forkserver import server\n"
        f"server.main({theirs.fileno()}, {os.getpid()}, {list(preload)!r})"
    )
    env = dict(os.environ)
    process = subprocess.Popen(
        child.interpreter(code),
        pass_fds=[theirs.fileno()],
        # One thread: libraries that start theirs when imported would not survive the fork.
        env={**env, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    theirs.close()
    process.returncode = 0  # `Server.stop` waits for it.
    return Server(Client(ours), process.pid, env)


def start_forked(preload: Sequence[str], inherited: Any = None) -> Server:
    """A server that is a fork of this process, with all that it has loaded.

    Args:
        preload: Modules to load in the server only.
        inherited: A value that children receive as it is, without pickling.
    """
    ours, theirs = socket.socketpair()
    caller = os.getpid()
    env = dict(os.environ)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()  # What is buffered here must not be written twice.
    # Whatever is raised in what the interpreter does around a fork is lost.
    with held(signal.SIGINT, signal.SIGTERM) as signals:
        pid = os.fork()
        if pid == 0:
            try:
                atexit._clear()
                ours.close()
                os.setsid()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                if preload:
                    os.environ["OMP_NUM_THREADS"] = "1"
                server.serve(theirs, caller, preload, inherited)
            finally:
                os._exit(child.EXIT_BROKEN)
        theirs.close()
        started = Server(Client(ours), pid, env)
        signals.deliver()
    return started
