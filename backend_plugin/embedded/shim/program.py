"""Starts a program in a child process, with runc's error messages if that fails."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# With this niceness of pods, the server responds while training uses all cores.
_NICENESS = 5
# If memory runs out, the kernel kills processes with a high score before the server.
_OOM_SCORE = 500

_REFUSED = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
    "failed: unable to start container process: %s: unknown"
)


class CannotStart(Exception):
    """Raised if no process was started, because the program is missing or not executable."""


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose parent has ended, if the kernel supports it."""
    if _LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def start_program(spec: dict[str, Any], cwd: str, streams: tuple[int, int]) -> int:
    """Start the program of a container in a new session, and return its pid.

    Args:
        spec: The description of the container in the launch file.
        cwd: The working directory.
        streams: The file descriptors for the standard output and error of the program.

    Raises:
        CannotStart: If the program could not be executed.
    """
    error_in, error_out = os.pipe()
    shim = os.getpid()
    pid = os.fork()
    if pid == 0:
        _run_child(spec, cwd, (*streams, error_out), shim)
    os.close(error_out)
    try:
        error = os.read(error_in, 4096)
    finally:
        os.close(error_in)
    if error:
        os.waitpid(pid, 0)
        raise CannotStart(_REFUSED % error.decode(errors="replace"))
    return pid


def _run_child(spec: dict[str, Any], cwd: str, fds: tuple[int, int, int], shim: int) -> None:
    """Execute the program, and write errors to the last descriptor in `fds`. Do not return."""
    *streams, error_out = fds
    try:
        try:
            error = _prepare_child(cwd, streams, shim) or _execute(spec["argv"], spec["env"])
        except OSError as wrong:
            error = _format_error(wrong)
        os.write(error_out, error.encode(errors="replace"))
    finally:
        os._exit(128)


def _prepare_child(cwd: str, streams: list[int], shim: int) -> str:
    os.setsid()
    if _LINUX:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != shim:  # The shim ended before the death signal was set.
        os._exit(128)
    null = os.open(os.devnull, os.O_RDONLY)
    for wanted, fd in enumerate((null, *streams)):
        os.dup2(fd, wanted)
    # The parent of the server may have ignored signals, as nohup does, and Python ignores SIGPIPE.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    os.nice(_NICENESS)
    _raise_oom_score()
    try:
        os.chdir(cwd)
    except OSError as wrong:
        return f'chdir to cwd ("{cwd}") set in config.json failed: {_format_error(wrong)}'
    return ""


def _raise_oom_score() -> None:
    try:
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:  # noqa: PTH123
            file.write(str(max(_OOM_SCORE, int(file.read()))))
    except OSError:  # A sandbox may forbid it, and other systems have no such file.
        return


def _execute(argv: list[str], env: dict[str, str]) -> str:
    name = argv[0]
    try:
        os.execvpe(name, argv, env)  # noqa: S606 - containers run without a shell.
    except OSError as wrong:
        is_missing = "/" not in name and wrong.errno in (errno.ENOENT, errno.ENOTDIR)
        reason = "executable file not found in $PATH" if is_missing else _format_error(wrong)
    except ValueError as wrong:  # The cause is a NUL in an argument or a "=" in the name of a variable.
        reason = str(wrong)
    return f'exec: "{name}": {reason}'


def _format_error(wrong: OSError) -> str:
    return (wrong.strerror or str(wrong)).lower()


def _prctl(option: int, value: int) -> None:
    _LIBC.prctl(option, value, 0, 0, 0)


# Loaded before the fork, because a child should execute little code.
_LIBC = ctypes.CDLL(None)
