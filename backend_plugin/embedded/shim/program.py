"""From a fork to somebody else's program: all that happens between the two, and how it may go wrong.

Lives here: what a child does to itself, and runc's words for what it could not do. Does not: waiting for it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys

_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_REFUSED = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
    "failed: unable to start container process: %s: unknown"
)
_WORDS = {
    errno.ENOENT: "no such file or directory",
    errno.EACCES: "permission denied",
    errno.ENOEXEC: "exec format error",
    errno.ENOTDIR: "not a directory",
    errno.E2BIG: "argument list too long",
}


class CannotStart(Exception):
    """There is no process: the program is not there, or not one."""


class Program:
    """What a process becomes."""

    __slots__ = ("argv", "cwd", "env", "nice", "oom_score")

    def __init__(self, argv: list[str], env: dict[str, str], cwd: str) -> None:
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.nice = 0
        self.oom_score: int | None = None


def adopt_orphans() -> None:
    """Be the parent of every descendant whose parent dies, where the kernel can do that."""
    if _LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def start(program: Program, out: int, err: int) -> int:
    """The id of the new process, which leads a session of its own; raises `CannotStart`."""
    told, tell = os.pipe()
    shim = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(program, (out, err), tell, shim)
    os.close(tell)
    try:
        trouble = os.read(told, 4096)
    finally:
        os.close(told)
    if trouble:
        os.waitpid(pid, 0)
        raise CannotStart(_REFUSED % trouble.decode(errors="replace"))
    return pid


def _become(program: Program, streams: tuple[int, int], tell: int, shim: int) -> None:
    """Never returns."""
    try:
        try:
            trouble = _prepare(program, streams, shim) or _execute(program)
        except OSError as wrong:
            trouble = _words(wrong)
        os.write(tell, trouble.encode(errors="replace"))
    finally:
        os._exit(128)


def _prepare(program: Program, streams: tuple[int, int], shim: int) -> str:
    os.setsid()
    if _LINUX:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != shim:  # It died before it could have been heard of.
        os._exit(128)
    null = os.open(os.devnull, os.O_RDONLY)
    for wanted, fd in enumerate((null, *streams)):
        os.dup2(fd, wanted)
    # Whoever started the server may have ignored some, as nohup does; and Python ignores SIGPIPE.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    os.nice(program.nice)
    _set_oom_score(program.oom_score)
    try:
        os.chdir(program.cwd)
    except OSError as wrong:
        return f'chdir to cwd ("{program.cwd}") set in config.json failed: {_words(wrong)}'
    return ""


def _set_oom_score(score: int | None) -> None:
    if score is None:
        return
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(str(score))
    except OSError:  # A sandbox may forbid it; what got away is then told from others' only by its parents.
        return


def _execute(program: Program) -> str:
    name = program.argv[0]
    try:
        os.execvpe(name, program.argv, program.env)  # noqa: S606 - the point of it.
    except OSError as wrong:
        if "/" in name:
            stat = "" if os.path.lexists(name) else f"stat {name}: "
            return f'exec: "{name}": {stat}{_words(wrong)}'
        if wrong.errno in (errno.ENOENT, errno.ENOTDIR):
            return f'exec: "{name}": executable file not found in $PATH'
        return f'exec: "{name}": {_words(wrong)}'
    except ValueError as wrong:  # A NUL in an argument or a name of a variable with "=".
        return f'exec: "{name}": {wrong}'


def _words(wrong: OSError) -> str:
    return _WORDS.get(wrong.errno or 0, (wrong.strerror or str(wrong)).lower())


def _prctl(option: int, value: int) -> None:
    _LIBC.prctl(option, value, 0, 0, 0)


# Looked up before any fork: a child does as little as it can.
_LIBC = ctypes.CDLL(None)
