"""The client of a fork server: starts children, sends signals to them and receives their exit codes."""

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
from kfpytorch_common.deferred_signals import defer_signals
from kfpytorch_common.forkserver import child, messages, server

# Variables that are read only when an interpreter or a library starts; a fork cannot change them.
_READ_AT_IMPORT = (
    "ATEN_", "DYLD_", "FLYTE_KFPYTORCH_FORK", "FLYTE_SDK_LOGGING", "GOMP_", "KMP_", "LD_", "MALLOC_",
    "MKL_", "OMP_", "OPENBLAS_", "PYTHON", "PYTORCH_", "TORCH_",
)  # fmt: skip
_APPLIED_LATER = (
    "KMP_INIT_AT_FORK",  # torch sets it at import.
    "OMP_NUM_THREADS", "PYTHONBREAKPOINT", "PYTHONPATH", "PYTHONUNBUFFERED", "TORCH_ELASTIC_",
    "TORCH_FR_", "TORCH_GLOO_", "TORCH_NCCL_",
)  # fmt: skip
_GONE = "the process that starts the workers is gone; it may have been killed for lack of memory"


class ForkServerGone(ConnectionError):
    """The fork server ended; the kernel may have killed it for lack of memory."""


def build_import_path() -> list[str]:
    """Return `sys.path`, preceded by directories from which modules were loaded but that are not on it.

    `pyflyte run` has the directory of the script on the path only while it loads the script.
    """
    path: list[str] = []
    for name, file in loaded_modules.list_source_files().items():
        if "." in name or name == "__main__":
            continue
        place = Path(file).parent
        root = str(place.parent if Path(file).stem == "__init__" else place)
        if root not in sys.path and root not in path and place.is_absolute():
            path.append(root)
    return [*path, *sys.path]


@dataclass(frozen=True)
class ChildSpec:
    """A process to start."""

    target: str
    """``module:function``, called with a `child.ChildStart`; its result is the exit code."""
    args: Mapping[str, Any]
    """The arguments as plain JSON."""
    env: Mapping[str, str] | None
    """The complete environment; None keeps that of the server."""
    serve: bool = False
    """True to give the process a separate connection to the server."""
    cwd: str = field(default_factory=os.getcwd)
    path: Sequence[str] = field(default_factory=build_import_path)
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
        """Return the descriptor for `select`; it is readable if exits may have arrived."""
        return self._sock.fileno()

    def start(self, job: ChildSpec, fds: Sequence[int]) -> tuple[int, int]:
        """Start a process with `fds` as its standard streams (the first three) and extras.

        Returns:
            The number of the child for this client, and its process id.

        Raises:
            ForkServerGone: The server does not reply.
        """
        number, self._next = self._next, self._next + 1
        self._send({"op": "start", "child": number, **vars(job)}, fds)
        while True:
            message = self._receive()
            if message["op"] == "started":
                return number, message["pid"]

    def signal_group(self, number: int, signum: int) -> None:
        """Send a signal to the process group of the child, unless the child has ended."""
        self._send({"op": "kill", "child": number, "signal": int(signum)})

    def signal_child(self, number: int, signum: int) -> None:
        """Send a signal to the child alone, not to its group; for an agent, to its workers instead."""
        self._send({"op": "poke", "child": number, "signal": int(signum)})

    def release(self, number: int) -> None:
        """Kill the other processes in the child's process group, and remove the child from the server."""
        self._send({"op": "release", "child": number})

    def connect(self) -> "Client":
        """Return one more connection to the server, because several runs may use it at a time."""
        own_end, server_end = socket.socketpair()
        with self._lock, server_end:
            self._send({"op": "connect"}, [server_end.fileno()])
        return Client(own_end)

    def keep_scratch(self, path: str) -> None:
        """Do not remove a directory that was registered with `add_scratch`."""
        self._scratch.remove(path)
        self._send({"op": "keep", "path": path})

    def wait_until_handled(self) -> None:
        """Wait until the server has handled all previous messages."""
        self._send({"op": "settle"})
        while self._receive()["op"] != "settled":
            pass

    def add_scratch(self, path: str) -> None:
        """Register a directory that the server removes when the connection closes."""
        self._scratch.append(path)
        self._send({"op": "scratch", "path": path})

    def wait_for_exits(self, timeout: float = 0.0) -> list[tuple[int, int]]:
        """Return the children that ended since the last call, with exit codes; wait for the first.

        Raises:
            ForkServerGone: The server ended.
        """
        while not self._exits and select.select([self._sock], [], [], timeout)[0]:
            self._receive()
        while select.select([self._sock], [], [], 0)[0]:
            self._receive()
        exits, self._exits = self._exits, []
        return exits

    def stop(self) -> None:
        """Make the server end with all its children, and close the connection."""
        with contextlib.suppress(ForkServerGone):
            self._send({"op": "stop"})
        self.close()

    def remove_scratch(self) -> None:
        """Remove the directories that a server left because it was stopped while it loaded."""
        for path in self._scratch:
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Close the connection; the server then ends all children of this client."""
        self._sock.close()

    def _send(self, message: messages.Message, fds: Sequence[int] = ()) -> None:
        try:
            messages.send(self._sock, message, fds)
        except OSError as gone:
            raise ForkServerGone("the fork server does not answer") from gone

    def _receive(self) -> messages.Message:
        received = messages.receive(self._sock)
        if received is None:
            raise ForkServerGone(_GONE)
        message = received[0]
        if message["op"] == "exited":
            self._exits.append((message["child"], message["code"]))
        return message


@dataclass
class ForkServer:
    """A running fork server, with the connection of this process to it."""

    client: Client
    pid: int
    env: Mapping[str, str]
    """The environment with which the server was started."""
    owner: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        atexit.register(self.stop)

    def is_suitable(self, env: Mapping[str, str]) -> bool:
        """True if a child of this server is equivalent to an interpreter started with `env`."""
        return (
            self.owner == os.getpid()
            and self._is_alive()
            and select_import_variables(self.env) == select_import_variables(env)
        )

    def stop(self) -> None:
        """End the server and its children, and wait for them."""
        atexit.unregister(self.stop)
        if self.owner != os.getpid():
            return
        # While the server loads, the signal ends it. Later it ignores the signal, and the message ends it,
        # even if another process has a copy of the socket.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        self.client.stop()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self.client.remove_scratch()

    def _is_alive(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            return os.waitpid(self.pid, os.WNOHANG)[0] == 0
        return False


def select_import_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that only a new interpreter reads."""
    return {
        name: value
        for name, value in env.items()
        if name.startswith(_READ_AT_IMPORT) and not name.startswith(_APPLIED_LATER)
    }


def start_fresh_server(preload: Sequence[str]) -> ForkServer:
    """Start a server in a new interpreter that loads only `preload`."""
    own_end, server_end = socket.socketpair()
    home = str(Path(__file__).resolve().parents[2])
    code = (
        # With -c the working directory is first on the path, and may contain a random.py of the user.
        f"import sys; sys.path[:] = [*filter(None, sys.path), {home!r}]\n"
        "from kfpytorch_common.forkserver import server\n"
        f"server.main({server_end.fileno()}, {os.getpid()}, {list(preload)!r})"
    )
    env = dict(os.environ)
    process = subprocess.Popen(
        child.build_interpreter_command(code),
        pass_fds=[server_end.fileno()],
        # One thread, because threads that libraries start at import do not survive a fork.
        env={**env, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    server_end.close()
    process.returncode = 0  # `Server.stop` waits for it.
    return ForkServer(Client(own_end), process.pid, env)


def start_forked_server(preload: Sequence[str], inherited: Any = None) -> ForkServer:
    """Start a server as a fork of this process, with all its modules and `preload`.

    Children receive `inherited` without pickling.
    """
    own_end, server_end = socket.socketpair()
    caller = os.getpid()
    env = dict(os.environ)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()  # A fork would write buffered output a second time.
    # The interpreter ignores exceptions in its callbacks around a fork.
    with defer_signals(signal.SIGINT, signal.SIGTERM) as signals:
        pid = os.fork()
        if pid == 0:
            try:
                atexit._clear()
                own_end.close()
                os.setsid()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                if preload:
                    os.environ["OMP_NUM_THREADS"] = "1"
                server.serve(server_end, caller, preload, inherited)
            finally:
                os._exit(child.EXIT_BROKEN)
        server_end.close()
        started = ForkServer(Client(own_end), pid, env)
        signals.deliver()
    return started
