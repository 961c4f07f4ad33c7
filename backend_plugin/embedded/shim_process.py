"""Starts, attaches to and kills the shim of a pod, the process that runs its containers."""

import contextlib
import errno
import os
import stat
import subprocess
import sys
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


def start_shim(directory: PodDirectory, lock: int, server_pipe: int) -> ShimHandle:
    """Start the shim of a pod. The shim inherits `lock`, the descriptor of the lock of the directory.

    The shim ends when the pipe `server_pipe` closes; -1 stands for no such pipe.
    """
    with contextlib.ExitStack() as opened:
        # Open both ends before the shim starts, so that the pipe ends with the shim and no command is lost.
        pipes = [_open_pipe(directory.path / each, os.O_RDWR) for each in (layout.WAKE, layout.CONTROL)]
        for each in pipes:
            opened.callback(os.close, each)
        wake = _open_pipe(directory.path / layout.WAKE, os.O_RDONLY)
        try:
            return ShimHandle(process=_spawn_shim(directory, [*pipes, server_pipe, lock]), wake=wake)
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
