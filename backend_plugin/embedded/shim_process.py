"""Starts the shim of a pod, attaches to a running one, and kills it."""

import contextlib
import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
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
    """A shim and the read end of its wake pipe."""

    process: "subprocess.Popen[bytes] | None"
    """None if another server has started the shim."""
    wake: int

    def kill(self, path: Path) -> None:
        """Kill the shim of the pod at `path`, but not another process that has reused its id."""
        if self.process is not None:
            self.process.kill()
            return
        import psutil  # Rarely needed and slow to import.

        command = [_SHIM, str(path)]
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if _has_sequence(each.cmdline(), command):
                    each.kill()  # psutil first checks that the id was not reused.


def start_shim(directory: PodDirectory, lock: int, lifeline: int) -> ShimHandle:
    """Start the shim of a pod. It inherits the lock, and ends when `lifeline` closes (-1: no such pipe)."""
    with contextlib.ExitStack() as opened:
        # Open both ends before the shim starts, so that the pipe ends with the shim and no order is lost.
        pipes = [
            opened.enter_context(_open_both_ends(directory.path / each))
            for each in (layout.WAKE, layout.CONTROL)
        ]
        wake = _open_wake_pipe(directory)
        try:
            return ShimHandle(process=_spawn_shim(directory, [*pipes, lifeline, lock]), wake=wake)
        except OSError:
            os.close(wake)
            raise


def attach_shim(directory: PodDirectory) -> ShimHandle | None:
    """Return the running shim of a pod, or None."""
    wake = _open_wake_pipe(directory)
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


def _open_wake_pipe(directory: PodDirectory) -> int:
    return _open_pipe(directory.path / layout.WAKE, os.O_RDONLY)


@contextlib.contextmanager
def _open_both_ends(pipe: Path) -> Iterator[int]:
    fd = _open_pipe(pipe, os.O_RDWR)
    try:
        yield fd
    finally:
        os.close(fd)


def _open_pipe(path: Path, how: int) -> int:
    fd = os.open(path, how | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "is not a pipe any more", str(path))
    return fd


def _has_sequence(words: Sequence[str], part: Sequence[str]) -> bool:
    return any(list(words[at : at + len(part)]) == part for at in range(len(words)))
