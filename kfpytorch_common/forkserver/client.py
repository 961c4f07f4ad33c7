"""The client of a fork server: starts children, sends signals to them and receives their exit codes."""

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Final

from kfpytorch_common import loaded_modules
from kfpytorch_common.forkserver import messages

# Seconds; `wait` does not accept more than 24 days.
_LONGEST_WAIT: Final = 86_400.0
_GONE = "the process that starts the workers is gone; it may have been killed for lack of memory"


class ForkServerGone(ConnectionError):
    """The fork server ended; the kernel may have killed it for lack of memory."""


def build_import_path() -> list[str]:
    """Return `sys.path`, preceded by directories of loaded modules that are not in `sys.path`.

    A child needs these directories to import the same modules: `pyflyte run` has the directory of the
    script in `sys.path` only while it loads the script.
    """
    files = loaded_modules.list_source_files()
    files.pop("__main__", None)
    loaded = [Path(file) for name, file in files.items() if "." not in name]
    roots = [file.parent.parent if file.stem == "__init__" else file.parent for file in loaded]
    added = dict.fromkeys(str(root) for root in roots if root.is_absolute() and str(root) not in sys.path)
    return [*added, *sys.path]


@dataclass(frozen=True)
class ChildSpec:
    """A process that a fork server starts for a client."""

    target: str
    """The function, as ``module:function``. It takes a `child.ChildStart` and returns an exit code."""
    args: Mapping[str, Any]
    """The value of `ChildStart.args`; it contains only values that JSON can encode."""
    env: Mapping[str, str] | None
    """All environment variables of the process; None if it keeps those of the server."""
    serve: bool = False
    """True if the process gets its own connection to the server, through which it can start children."""
    cwd: str = field(default_factory=os.getcwd)
    path: Sequence[str] = field(default_factory=build_import_path)
    argv: Sequence[str] = field(default_factory=lambda: list(sys.argv))


class Client:
    """A connection to a fork server."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._next = 0
        self._exits: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """Return the connection's descriptor. It is readable after a message, such as the exit of a child."""
        return self._sock.fileno()

    def start(self, job: ChildSpec, fds: Sequence[int]) -> tuple[int, int]:
        """Start a process. Return its number, which identifies it in other calls, and its process id.

        The first three of `fds` become its standard streams; it gets the others as `ChildStart.fds`.

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
        """Send a signal to the process of the child only, not to its process group.

        If the child is a client of the server (`ChildSpec.serve`), its children get the signal instead.
        """
        self._send({"op": "poke", "child": number, "signal": int(signum)})

    def release(self, number: int) -> None:
        """Kill the other processes in the child's process group, and remove the child from the server."""
        self._send({"op": "release", "child": number})

    def connect(self) -> "Client":
        """Open a second connection to the server and return it, so that each run has its own."""
        own_end, server_end = socket.socketpair()
        with self._lock, server_end:
            self._send({"op": "connect"}, [server_end.fileno()])
        return Client(own_end)

    def keep_scratch(self, path: str) -> None:
        """Unregister the directory `path` (see `add_scratch`), so that the server does not remove it."""
        self._send({"op": "keep", "path": path})

    def wait_until_handled(self) -> None:
        """Wait until the server has processed all messages that this client has sent."""
        self._send({"op": "settle"})
        while self._receive()["op"] != "settled":
            pass

    def add_scratch(self, path: str) -> None:
        """Register a temporary directory, which the server removes when this connection closes."""
        self._send({"op": "scratch", "path": path})

    def wait_for_exits(self, timeout: float = 0.0) -> list[tuple[int, int]]:
        """Return the number (from `start`) and the exit code of each child that ended since the last call.

        If no child has ended since then, wait at most `timeout` seconds for the next exit.

        Raises:
            ForkServerGone: The server ended.
        """
        while not self._exits and wait([self._sock], min(timeout, _LONGEST_WAIT)):
            self._receive()
        while wait([self._sock], 0):
            self._receive()
        exits, self._exits = self._exits, []
        return exits

    def stop(self) -> None:
        """Make the server end with all its children, and close the connection."""
        with contextlib.suppress(ForkServerGone):
            self._send({"op": "stop"})
        self.close()

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
