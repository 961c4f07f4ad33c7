"""Starts, attaches to, commands and kills the shim of a pod, the process that runs its containers."""

import asyncio
import contextlib
import errno
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import backend_plugin
from backend_plugin.embedded.pod_directory import PodDirectory
from backend_plugin.embedded.shim import layout

_PACKAGES: Final = Path(backend_plugin.__file__).parent.parent
# Environment variables and installed packages do not affect a shim (`-I -S`).
_SHIM: Final = (
    f"import sys; sys.path.append({str(_PACKAGES)!r}); "
    "from backend_plugin.embedded.shim.main import main; main()"
)


@dataclass(frozen=True, slots=True)
class ShimHandle:
    """The shim of a pod, and the read end of the pipe on which it sends notifications."""

    process: "subprocess.Popen[bytes] | None"
    """The process of the shim; None if an earlier server has started it."""
    wake: int

    def kill(self, path: Path) -> None:
        """Kill the shim of the pod with the directory `path`, but no other process that has reused its id."""
        if self.process is not None:
            self.process.kill()
            return
        import psutil  # Rarely needed and slow to import.

        command = [_SHIM, str(path)]
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = each.cmdline()
                if any(words[at : at + 2] == command for at in range(len(words))):
                    each.kill()  # psutil first checks that the id was not reused.


def start_shim(directory: PodDirectory, lock: int, lifeline: int) -> ShimHandle:
    """Start the shim of a pod. It inherits the descriptor `lock`.

    The shim ends when the pipe `lifeline` closes; -1 stands for no such pipe.
    """
    with contextlib.ExitStack() as opened:
        # Open both ends before the shim starts, so that the pipe ends with the shim and no command is lost.
        pipes = [_open_pipe(directory.path / each, os.O_RDWR) for each in (layout.WAKE, layout.CONTROL)]
        for each in pipes:
            opened.callback(os.close, each)
        wake = _open_pipe(directory.path / layout.WAKE, os.O_RDONLY)
        try:
            return ShimHandle(process=_spawn_shim(directory, [*pipes, lifeline, lock]), wake=wake)
        except OSError:
            os.close(wake)
            raise


def attach_shim(directory: PodDirectory) -> ShimHandle | None:
    """Return a handle of the running shim of a pod, or None if no shim runs."""
    wake = _open_pipe(directory.path / layout.WAKE, os.O_RDONLY)
    # Check after opening: if the shim ends later, the pipe reports it.
    if directory.is_alive:
        return ShimHandle(process=None, wake=wake)
    os.close(wake)
    return None


def _spawn_shim(directory: PodDirectory, fds: list[int]) -> "subprocess.Popen[bytes]":
    with (directory.path / layout.COMPLAINTS).open("ab") as complaints:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", "-c", _SHIM, str(directory.path), *map(str, fds)],
            stdin=subprocess.DEVNULL,
            stdout=complaints,
            stderr=complaints,
            cwd="/",
            pass_fds=[fd for fd in fds if fd >= 0],
            # Ctrl-C or a hangup in the terminal of the server must not reach pods.
            start_new_session=True,
        )


def _open_pipe(path: Path, how: int) -> int:
    fd = os.open(path, how | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "is not a pipe any more", str(path))
    return fd


_LOG = logging.getLogger(__name__)


class ShimCommands:
    """Sends commands to the shim of a pod, and kills a shim whose pod does not end in time.

    `stop_timeout` is the number of seconds that the pod may take to end after its grace period.
    """

    def __init__(self, directory: PodDirectory, stop_timeout: float, kill: Callable[[], None]) -> None:
        self._directory = directory
        self._stop_timeout = stop_timeout
        self._kill = kill
        self._deadline: asyncio.TimerHandle | None = None
        self._is_closed = False

    def send(self, word: str, value: str = "") -> None:
        """Send the command `word` with the argument `value`; do nothing after `close`."""
        if not self._is_closed:
            # Ignore a shim that cannot read: the server kills it if its pod does not end.
            with contextlib.suppress(OSError):
                self._directory.send_command(word, value)

    def terminate(self, grace: float) -> None:
        """End the pod within `grace` seconds."""
        self.send(layout.TERMINATE, str(grace))
        self._check_after(grace + self._stop_timeout)

    def kill(self) -> None:
        """End the pod immediately, as if its node had failed."""
        self.send(layout.LOSE)
        self._check_after(self._stop_timeout)

    def close(self) -> None:
        """Cancel the timer that kills the shim: the pod has ended, or the server stops observing it."""
        self._is_closed = True
        if self._deadline is not None:
            self._deadline.cancel()

    def _check_after(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if self._is_closed or (self._deadline is not None and self._deadline.when() <= at):
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = loop.call_at(at, self._check_shim)

    def _check_shim(self) -> None:
        self._deadline = None
        _LOG.warning("the shim of %s does not respond; killing it", self._directory.path)
        try:
            self._kill()
        except OSError as error:  # Too many open files.
            _LOG.warning("%s: %s", self._directory.path, error)
        self._check_after(self._stop_timeout)
