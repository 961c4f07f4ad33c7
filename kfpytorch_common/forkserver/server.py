"""The server: imports once, then forks a child for each request.

It has one thread and runs nobody's code but the modules it was told to load, so that a fork of it
is as good as a new interpreter. It knows three ways to end, and each takes all its children along:
its caller hangs up, its caller dies, or it is killed (the children ask the kernel to die with it).
"""

import contextlib
import gc
import importlib
import os
import selectors
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn

from kfpytorch_common.forkserver import child, fork_state, messages

# A caller that was killed while another process still holds a copy of its socket is
# noticed by its process id, at this interval (seconds).
_ORPHAN_CHECK = 1.0


def main(fd: int, parent: int, preload: Sequence[str]) -> NoReturn:
    """Serve the socket `fd` until it closes; the entry of a fresh interpreter."""
    serve(socket.socket(fileno=fd), parent, preload)


def serve(control: socket.socket, parent: int, preload: Sequence[str], inherited: Any = None) -> NoReturn:
    """Load `preload`, then answer requests until `control` closes or the process `parent` is gone.

    Args:
        control: The caller's connection.
        parent: Process id of the caller.
        preload: Names of modules to import first; one that cannot be imported is left to the
            children, who will say why.
        inherited: A value of this process that children started with `inherit` receive.
    """
    _quiet()
    # The collector would walk all modules again and again while they load, and a later
    # collection in a child would copy every page that it touches.
    gc.disable()
    for name in preload if child.can_fork() else ():  # A new interpreter would gain nothing.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    generators = fork_state.list_generators() if inherited is None else None
    gc.freeze()  # What little is garbage by now is cheaper to keep than to find.
    gc.enable()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server = _Server(control, parent, inherited, generators)
    try:
        server.run()
    finally:
        server.end()
        os._exit(0)


def _quiet() -> None:
    """Detach from the caller's terminal: whoever reads the caller's output must not wait for us."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    for name in ("SIGINT", "SIGHUP", "SIGQUIT"):
        # The caller decides when its group ends; a signal to the whole terminal is not an order to us.
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Until there are children, the quickest way out.


@dataclass
class _Client:
    sock: socket.socket
    children: dict[int, int] = field(default_factory=dict)
    """Process ids by the number that the client gave."""
    scratch: list[str] = field(default_factory=list)
    """Directories to remove when it hangs up."""


@dataclass
class _Child:
    client: _Client
    number: int
    served: _Client | None
    """Its own connection, if it has one: what it starts ends with it."""
    exited: bool = False


class _Server:
    def __init__(
        self, control: socket.socket, parent: int, inherited: Any, generators: list[Random] | None
    ) -> None:
        self._control = _Client(control)
        self._clients = [self._control]
        self._children: dict[int, _Child] = {}
        self._parent = parent
        self._inherited = inherited
        self._generators = generators
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
        while os.getppid() == self._parent:
            for key, _ in self._selector.select(_ORPHAN_CHECK):
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                elif not self._serve(key.data):
                    return
            self._notice_exits()

    def end(self) -> None:
        for client in list(self._clients):
            self._hang_up(client)  # One may take others along.

    def _serve(self, client: _Client) -> bool:
        """Carry out one request; False when the caller itself has hung up."""
        received = messages.receive(client.sock)
        if received is None:
            if client is self._control:
                return False
            self._hang_up(client)
            return True
        message, fds = received
        if message["op"] == "stop":
            return False
        requests: dict[str, Callable[[], object]] = {
            "start": lambda: self._start(client, message, fds),
            "kill": lambda: self._signal(os.killpg, client, message),
            "poke": lambda: self._poke(client, message),
            "release": lambda: self._release(client, message["child"]),
            "settle": lambda: self._tell(client, {"op": "settled"}),
            "connect": lambda: self._add(_Client(socket.socket(fileno=fds.pop()))),
            "scratch": lambda: client.scratch.append(message["path"]),
            "keep": lambda: client.scratch.remove(message["path"]),
        }
        requests[message["op"]]()
        return True

    def _add(self, client: _Client) -> None:
        self._clients.append(client)
        self._selector.register(client.sock, selectors.EVENT_READ, client)

    def _start(self, client: _Client, job: messages.Message, fds: list[int]) -> None:
        ours, theirs = socket.socketpair() if job["serve"] else (None, None)
        pid = self._fork(job, fds, theirs)
        for fd in fds:
            os.close(fd)
        served = _Client(ours) if ours else None
        if served and theirs:
            theirs.close()
            self._add(served)
        client.children[job["child"]] = pid
        self._children[pid] = _Child(client, job["child"], served)
        self._tell(client, {"op": "started", "child": job["child"], "pid": pid})

    def _fork(self, job: messages.Message, fds: list[int], sock: socket.socket | None) -> int:
        if not child.can_fork():
            return child.spawn(job, fds, sock)
        waiting, begun = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(waiting)
                self._forget()
                child.end_with(parent)
                self._renew_state()
                child.run(job, fds, sock, inherited=self._inherited, begun=begun)
            finally:
                os._exit(child.EXIT_BROKEN)
        os.close(begun)
        os.read(waiting, 1)
        os.close(waiting)
        return pid

    def _forget(self) -> None:
        """In a child: let go of everything of the server's."""
        signal.set_wakeup_fd(-1)
        self._selector.close()
        for fd in self._own_fds:
            os.close(fd)
        for client in self._clients:
            client.sock.close()

    def _renew_state(self) -> None:
        """In a child: replace the state that libraries drew in the server."""
        if self._generators is None:  # The server is a fork of the user's process.
            fork_state.renew_unseeded()
        else:
            fork_state.renew(self._generators)

    def _notice_exits(self) -> None:
        for pid, known in list(self._children.items()):
            if known.exited:
                continue
            status = _exit_code(pid)
            if status is not None:
                known.exited = True
                self._tell(known.client, {"op": "exited", "child": known.number, "code": status})

    def _signal(self, send: Callable[[int, int], None], client: _Client, message: messages.Message) -> None:
        pid = client.children.get(message["child"])
        if pid is not None and not self._children[pid].exited:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(pid, message["signal"])

    def _poke(self, client: _Client, message: messages.Message) -> None:
        """Signal a child alone, or the children of a child that is a client itself."""
        pid = client.children.get(message["child"])
        served = self._children[pid].served if pid is not None else None
        if served is None:
            self._signal(os.kill, client, message)
            return
        for number in served.children:
            self._signal(os.kill, served, {**message, "child": number})

    def _release(self, client: _Client, number: int) -> None:
        """End what is left of a child and of the processes that it started, and forget it."""
        pid = client.children.pop(number, None)
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        # The process id was not given back until now, so the group could only be ours.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        served = self._children.pop(pid).served
        if served is not None:
            self._hang_up(served)

    def _hang_up(self, client: _Client) -> None:
        if client not in self._clients:
            return
        for number in list(client.children):
            self._release(client, number)
        for path in client.scratch:
            shutil.rmtree(path, ignore_errors=True)
        self._clients.remove(client)
        self._selector.unregister(client.sock)
        client.sock.close()

    @staticmethod
    def _tell(client: _Client, message: messages.Message) -> None:
        with contextlib.suppress(OSError):
            messages.send(client.sock, message)


def _exit_code(pid: int) -> int | None:
    """How `pid` ended, as `subprocess` writes it (negative: a signal); None while it lives."""
    if sys.platform == "darwin":  # There is no waitid before Python 3.13.
        found, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if found else None
    info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if info is None:
        return None
    return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
