"""The event loop of a shim, the process that runs one pod: waits for events and calls the supervisor."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from functools import partial

from backend_plugin.embedded.shim import files, layout
from backend_plugin.embedded.shim.lifecycle import format_node_lost
from backend_plugin.embedded.shim.process_tree import ProcessTree
from backend_plugin.embedded.shim.program import adopt_orphans
from backend_plugin.embedded.shim.supervisor import Supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from backend_plugin.embedded.shim.container import ContainerRun

_CHUNK = 1 << 16
# The maximum delay and the minimum interval of notifications about new log lines.
_UPDATE_SECONDS = 0.02
# The delay before the state is written again after a failure, for example because the disk is full.
_RETRY_SECONDS = 1.0


class Shim:
    """The event loop of a shim: calls a `Supervisor` after commands, output, ended processes and timeouts."""

    def __init__(self, directory: str, launch: dict[str, Any], wake: int) -> None:
        self._directory = directory
        self._launch = launch
        self._wake = wake
        self._poll = select.poll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._is_watched = False
        self._lines_at: float | None = None
        self._state_at: float | None = None
        self._is_left = False
        self._is_stop_requested = False
        self._supervisor = Supervisor(launch, directory, _create_tree(launch), self)

    def listen(self, control: int, server_pipe: int) -> None:
        """Watch for commands, ended child processes and the end of the server, which closes `server_pipe`."""
        wakeup_in, wakeup_out = os.pipe()
        os.set_blocking(wakeup_out, False)
        signal.set_wakeup_fd(wakeup_out, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_stop_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._add_reader(wakeup_in, lambda: self._reap_children(wakeup_in))
        self._add_reader(control, lambda: self._process_commands(control))
        if server_pipe >= 0:
            self._add_reader(server_pipe, lambda: self._on_server_exit(server_pipe))

    def run(self) -> None:
        """Run the pod until it has ended and its final state is stored."""
        self._write_state()  # Without a state file, the server assumes that no process was started.
        self._wait_for_events(0)  # The server may have ended or sent commands.
        while True:
            self._supervisor.advance()
            if self._supervisor.changed or (self._state_at and time.time() >= self._state_at):
                self._write_state()
            if self._supervisor.is_over and (self._state_at is None or self._is_left):
                return
            self._wait_for_events()

    def _wait_for_events(self, at_most: float | None = None) -> None:
        now = time.time()
        most = None if at_most is None else now + at_most
        wakes = [self._supervisor.wake_at, self._state_at, self._lines_at, most]
        at = min((each for each in wakes if each is not None), default=None)
        # Rounded up, because a timeout that is 1 ms too short would cause empty iterations.
        ready = self._poll.poll(None if at is None else max(0, int((at - now) * 1000) + 1))
        for fd, _ in ready:
            # A previous reader may have closed the descriptor.
            if fd in self._readers:
                self._readers[fd]()
        if self._lines_at is not None and time.time() >= self._lines_at:
            self._lines_at = None
            self._notify_server(layout.UPDATE_LOG)

    def _reap_children(self, wakeup_in: int) -> None:
        os.read(wakeup_in, _CHUNK)
        self._supervisor.reap_children()
        if self._is_stop_requested:
            self._supervisor.stop_pod(self._launch["grace"])

    def _on_stop_signal(self, *_: object) -> None:
        self._is_stop_requested = True

    def _process_commands(self, control: int) -> None:
        for order in os.read(control, _CHUNK).decode().splitlines():
            word, _, value = order.partition(" ")
            if word == layout.TERMINATE:
                self._supervisor.stop_pod(float(value))
            elif word == layout.EXPIRE:
                self._supervisor.expire_pod()
            elif word == layout.LOSE:
                self._stop_as_lost()
            elif word == layout.GATE:
                self._supervisor.gate_is_open = True
            elif word == layout.WATCH:
                self._is_watched = value == "1"

    def _on_server_exit(self, server_pipe: int) -> None:
        self._remove_reader(server_pipe)
        self._is_left = True
        self._stop_as_lost()

    def _stop_as_lost(self) -> None:
        lost = format_node_lost(self._launch["node"], self._launch["name"])
        self._supervisor.stop_pod(0, "NodeLost", lost)

    def start_reading(self, run: ContainerRun) -> None:
        """Read the output streams of a container run, from now on, when they have data."""
        for fd in run.streams:
            self._add_reader(fd, partial(self._read_stream, run, fd))

    def stop_reading(self, run: ContainerRun) -> None:
        """Stop reading the output streams of a container run; the caller closes them afterwards."""
        for fd in run.streams:
            self._remove_reader(fd)
        self._schedule_log_notification()

    def _read_stream(self, run: ContainerRun, fd: int) -> None:
        if run.read_output(fd) == 0:
            self._remove_reader(fd)
            run.close_stream(fd)
        self._schedule_log_notification()

    def _schedule_log_notification(self) -> None:
        if self._is_watched and self._lines_at is None:
            self._lines_at = time.time() + _UPDATE_SECONDS

    def _add_reader(self, fd: int, reader: Callable[[], None]) -> None:
        self._readers[fd] = reader
        self._poll.register(fd, select.POLLIN)

    def _remove_reader(self, fd: int) -> None:
        del self._readers[fd]
        self._poll.unregister(fd)

    def _write_state(self) -> None:
        path = f"{self._directory}/{layout.STATE}"
        state = json.dumps(self._supervisor.as_json())
        try:
            files.replace_file(path, state.encode())
        except FileNotFoundError:
            # The directory was removed, so the state cannot be reported.
            self._is_left = True
            self._stop_as_lost()
        except OSError:
            self._state_at = time.time() + _RETRY_SECONDS
        else:
            self._state_at = None
        self._notify_server(layout.UPDATE_STATE)

    def _notify_server(self, update: bytes) -> None:
        try:
            os.write(self._wake, update)
        except BlockingIOError:  # The pipe is full, so the server has unread updates anyway.
            return


def _create_tree(launch: dict[str, Any]) -> ProcessTree:
    # Some kernels have no lists of children (CONFIG_PROC_CHILDREN).
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):  # noqa: PTH110
        return ProcessTree()
    sys.path.append(launch["psutil"])
    from backend_plugin.embedded.shim.portable_tree import PortableTree

    return PortableTree(launch["uid"])


def main() -> None:
    """Run the shim of the pod in DIRECTORY. The arguments are ``DIRECTORY WAKE CONTROL SERVER LOCK``.

    The last four are file descriptors, or -1 for none. WAKE is a pipe to the server, and CONTROL is a pipe
    from the server. Both are open for reading and writing, so that they stay open when the server ends.
    SERVER is a pipe that closes when the server ends; then the shim ends, too. LOCK is the pod's lock, held
    until the shim ends.
    """
    directory = sys.argv[1]
    wake, control, server_pipe, _ = fds = [int(each) for each in sys.argv[2:]]
    for fd in fds:
        if fd >= 0:
            os.set_inheritable(fd, False)  # noqa: FBT003 - the argument is positional.
    with open(f"{directory}/{layout.LAUNCH}", encoding="utf-8") as file:  # noqa: PTH123
        launch = json.load(file)
    adopt_orphans()
    shim = Shim(directory, launch, wake)
    shim.listen(control, server_pipe)
    shim.run()
