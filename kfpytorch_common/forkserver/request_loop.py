"""Handles the requests to a fork server: starts children, signals them and reports their exit codes."""

import contextlib
import os
import selectors
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kfpytorch_common.forkserver import child, messages

# Interval for checking the process id of the caller (seconds). A killed caller does not close the connection
# if another process has a copy of its socket.
_ORPHAN_CHECK = 1.0


@dataclass(eq=False)
class _Client:
    sock: socket.socket
    children: dict[int, "_Child"] = field(default_factory=dict)
    """The child processes of this client; a key is the number that the client chose for the child."""
    scratch: list[str] = field(default_factory=list)


@dataclass
class _Child:
    pid: int
    served: _Client | None
    """The child's own connection, if any. When it closes, the server ends the children of the child."""
    exited: bool = False


class RequestLoop:
    """The connections of a fork server, and the children that it started for them.

    Args:
        control: The connection of the caller, the process that started the server.
        parent: The process id of the caller.
        inherited: The object that the target of a forked child receives as `ChildStart.inherited`.
        renew_state: Called in each forked child to replace copied state, such as that of random generators.
    """

    def __init__(
        self, control: socket.socket, parent: int, inherited: Any, renew_state: Callable[[], None]
    ) -> None:
        self._control = _Client(control)
        self._clients = [self._control]
        self._parent = parent
        self._inherited = inherited
        self._renew_state = renew_state
        self._wake, wake_end = os.pipe()
        for end in (self._wake, wake_end):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._own_fds = (self._wake, wake_end)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._selector.register(control, selectors.EVENT_READ, self._control)

    def run(self) -> None:
        """Process requests until the caller ends, disconnects or requests the end of the server."""
        while os.getppid() == self._parent:
            for key, _ in self._selector.select(_ORPHAN_CHECK):
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                elif not self._handle_request(key.data):
                    return
            self._report_exits()

    def register_remaining_scratch(self) -> None:
        """Process unread requests of a killed caller, but only those that register or unregister directories.

        `close_clients` then removes the registered directories.
        """
        for client in self._clients:  # A request to connect appends to the list.
            client.sock.settimeout(0)  # The last request may be incomplete.
            with contextlib.suppress(BlockingIOError):
                while received := messages.receive(client.sock):
                    message, fds = received
                    if message["op"] in {"connect", "scratch", "keep"}:
                        self._build_handlers(client, message, fds)[message["op"]]()

    def close_clients(self) -> None:
        """End all children, close the connections and remove the directories that clients have registered."""
        for client in list(self._clients):
            self._disconnect(client)  # This may disconnect other clients.

    def _handle_request(self, client: _Client) -> bool:
        """Process one request; return False if the server must end."""
        received = messages.receive(client.sock)
        if received is None:
            if client is self._control:
                return False
            self._disconnect(client)
            return True
        message, fds = received
        if message["op"] == "stop":
            return False
        self._build_handlers(client, message, fds)[message["op"]]()
        return True

    def _build_handlers(
        self, client: _Client, message: messages.Message, fds: list[int]
    ) -> Mapping[str, Callable[[], object]]:
        known = client.children.get(message.get("child", -1))
        return {
            "start": lambda: self._start_child(client, message, fds),
            "kill": lambda: self._send_signal(os.killpg, known, message["signal"]),
            "poke": lambda: self._signal_child(known, message["signal"]),
            "release": lambda: self._release_child(client, message["child"]),
            "settle": lambda: self._send_message(client, {"op": "settled"}),
            "connect": lambda: self._add_client(_Client(socket.socket(fileno=fds.pop()))),
            "scratch": lambda: client.scratch.append(message["path"]),
            "keep": lambda: client.scratch.remove(message["path"]),
        }

    def _add_client(self, client: _Client) -> None:
        self._clients.append(client)
        self._selector.register(client.sock, selectors.EVENT_READ, client)

    def _start_child(self, client: _Client, job: messages.Message, fds: list[int]) -> None:
        own_end, child_end = socket.socketpair() if job["serve"] else (None, None)
        pid = self._fork_child(job, fds, child_end)
        for fd in fds:
            os.close(fd)
        served = _Client(own_end) if own_end else None
        if served and child_end:
            child_end.close()
            self._add_client(served)
        client.children[job["child"]] = _Child(pid, served)
        self._send_message(client, {"op": "started", "child": job["child"], "pid": pid})

    def _fork_child(self, job: messages.Message, fds: list[int], sock: socket.socket | None) -> int:
        if not child.can_fork():
            return child.spawn(job, fds, sock)
        waiting, begun = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(waiting)
                signal.set_wakeup_fd(-1)
                self._selector.close()
                for fd in self._own_fds:
                    os.close(fd)
                for client in self._clients:
                    client.sock.close()
                child.exit_with_parent(parent)
                self._renew_state()
                child.run(job, fds, sock, inherited=self._inherited, begun=begun)
            finally:
                os._exit(child.EXIT_BROKEN)
        os.close(begun)
        os.read(waiting, 1)
        os.close(waiting)
        return pid

    def _report_exits(self) -> None:
        for client in self._clients:
            for number, known in client.children.items():
                status = None if known.exited else _find_exit_code(known.pid)
                if status is not None:
                    known.exited = True
                    self._send_message(client, {"op": "exited", "child": number, "code": status})

    @staticmethod
    def _send_signal(send: Callable[[int, int], None], known: _Child | None, signum: int) -> None:
        if known is not None and not known.exited:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(known.pid, signum)

    def _signal_child(self, known: _Child | None, signum: int) -> None:
        """Send a signal to a child, or, if the child is a client of this server, to its children instead."""
        served = known.served if known is not None else None
        for each in [known] if served is None else served.children.values():
            self._send_signal(os.kill, each, signum)

    def _release_child(self, client: _Client, number: int) -> None:
        known = client.children.pop(number, None)
        if known is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(known.pid, signal.SIGKILL)
        # The child was not reaped before, so the id of the group could not be reused.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(known.pid, 0)
        if known.served is not None:
            self._disconnect(known.served)

    def _disconnect(self, client: _Client) -> None:
        if client not in self._clients:
            return
        for number in list(client.children):
            self._release_child(client, number)
        for path in client.scratch:
            shutil.rmtree(path, ignore_errors=True)
        self._clients.remove(client)
        self._selector.unregister(client.sock)
        client.sock.close()

    @staticmethod
    def _send_message(client: _Client, message: messages.Message) -> None:
        with contextlib.suppress(OSError):
            messages.send(client.sock, message)


def _find_exit_code(pid: int) -> int | None:
    """Return the exit code of process `pid`, negative for a signal as in `subprocess`; None while it runs."""
    if sys.platform == "darwin":  # waitid is missing before Python 3.13.
        found, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if found else None
    info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if info is None:
        return None
    return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
