"""Set up a child of the fork server, which is a fork or a new interpreter, and call its target function."""

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import logging
import multiprocessing.process
import multiprocessing.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from kfpytorch_common.caught import Caught, catch
from kfpytorch_common.forkserver.messages import Message
from kfpytorch_common.loaded_modules import find_loaded

EXIT_BROKEN: Final = 70
"""The exit code of a child that could not run its target function (EX_SOFTWARE of sysexits.h)."""

ASK_WHERE: Final = signal.SIGRTMAX - 1 if hasattr(signal, "SIGRTMAX") else 29  # SIGINFO of macOS.
"""The signal on which a rank writes its stack to a file; a child ignores it until it has a handler."""

_FILE: Final = io.IOBase.__mro__[-2]
"""The C base type of all file objects; `io.IOBase` is an abstract class derived from it."""

_PR_SET_PDEATHSIG: Final = 1
_RESET: Final = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGCHLD")


@dataclass(frozen=True)
class ChildStart:
    """The argument of the function that a child of the fork server runs."""

    args: Mapping[str, Any]
    fds: Sequence[int]
    """The file descriptors of the request without the first three, which are the standard streams."""
    server: socket.socket | None
    """The child's own connection to the server, if the request has `serve` set; otherwise None."""
    inherited: Any
    """The value that `launch.start_forked_server` received for the children; None in a new interpreter."""


def can_fork() -> bool:
    """True if children are forks, not new interpreters: on Linux, unless FLYTE_KFPYTORCH_FORK=0 is set.

    On macOS, frameworks of the system may start threads, which do not survive a fork.
    """
    return sys.platform == "linux" and os.environ.get("FLYTE_KFPYTORCH_FORK") != "0"


def run(
    job: Message,
    fds: list[int],
    server: socket.socket | None,
    *,
    inherited: Any = None,
    begun: int | None = None,
) -> NoReturn:
    """Set up this process for `job` (see `client.ChildSpec`), call its target, and exit with the result.

    `fds` has the descriptors for standard input, output and error, then those for the target. The target also
    gets `server` and `inherited` (see `ChildStart`). This function closes the descriptor `begun` when this
    process has its own process group and signal handlers.
    """
    if os.getsid(0) != os.getpid():
        os.setsid()
    _reset_signals()
    if begun is not None:
        os.close(begun)  # The server waits for this, so that its signals to the group reach this process.
    for number in range(3):
        os.dup2(fds[number], number)
        os.close(fds[number])
    _open_streams()
    _reset_exit_handlers()
    if job["env"] is not None:
        os.environ.clear()
        os.environ.update(job["env"])
    time.tzset()  # A fork has the time zone of the server.
    with contextlib.suppress(OSError):
        os.chdir(job["cwd"])
    sys.path[:] = job["path"]
    sys.argv[:] = job["argv"]
    importlib.invalidate_caches()
    _set_thread_count()
    _exit_process(_call_target(job["target"], ChildStart(job["args"], fds[3:], server, inherited)))


def exit_with_parent(parent: int) -> None:
    """On Linux, make the kernel kill this process when its parent ends. Exit now if the parent has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(EXIT_BROKEN)


def spawn(job: Message, fds: list[int], server: socket.socket | None) -> int:
    """Start a child for `job` in a new interpreter with `fds` and `server`, and return its process id."""
    reader, writer = os.pipe()
    passed = [*fds, *([server.fileno()] if server else []), reader]
    command = f"from kfpytorch_common.forkserver import child; child.main({reader})"
    own = server.fileno() if server else None
    body = json.dumps({"job": job, "fds": fds, "server": own, "parent": os.getpid()})
    process = subprocess.Popen(
        build_interpreter_command("import sys; sys.path[:] = " + repr(job["path"]) + "; " + command),
        pass_fds=passed,
        # `run` sets these streams again. Until then they show why an interpreter does not start.
        stdin=fds[0],
        stdout=fds[1],
        stderr=fds[2],
        env=job["env"],
        cwd=job["cwd"],
        start_new_session=True,
        # A new program would keep ignoring the signals that the server ignores.
        preexec_fn=_reset_signals,  # noqa: PLW1509 - the server has one thread.
    )
    os.close(reader)
    with open(writer, "w") as pipe:
        pipe.write(body)
    process.returncode = 0  # The server waits for it; Popen must not.
    return process.pid


def main(fd: int) -> NoReturn:
    """Set up this new interpreter, and call the target function that `spawn` wrote to the pipe `fd`."""
    with os.fdopen(fd) as pipe:
        body = json.load(pipe)
    sock = None if body["server"] is None else socket.socket(fileno=body["server"])
    exit_with_parent(body["parent"])
    run({**body["job"]}, body["fds"], sock)


def build_interpreter_command(code: str) -> list[str]:
    """Return a command that runs `code` in a Python interpreter with the command-line flags of this one."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", code]


def _call_target(target: str, start: ChildStart) -> int:
    module, _, name = target.partition(":")
    code = catch(lambda: int(getattr(importlib.import_module(module), name)(start)), BaseException)
    if not isinstance(code, Caught):
        return code
    if isinstance(code.error, SystemExit):
        stop = code.error.code
        return stop if isinstance(stop, int) else 0 if stop is None else 1
    traceback.print_exception(code.error)
    return EXIT_BROKEN


def _exit_process(code: int) -> NoReturn:
    """End this process as an interpreter does: join threads, run exit handlers, flush open files."""
    steps = (threading._shutdown, atexit._run_exitfuncs, multiprocessing.util._exit_function, _flush_files)  # type: ignore[attr-defined]
    for step in steps:
        with contextlib.suppress(BaseException):  # An error must not change the exit code of the target.
            step()
    os._exit(code)


def _flush_files() -> None:
    """Flush all file objects of this process.

    The function checks `type(object)`. `isinstance` would also read `object.__class__`, which runs code of
    some objects, and which fails for a dead `weakref.proxy` or a lazy module.
    """
    for thing in gc.get_objects():
        if issubclass(type(thing), _FILE):
            with contextlib.suppress(BaseException):
                thing.flush()


def _reset_signals() -> None:
    for name in _RESET:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(ASK_WHERE, signal.SIG_IGN)


def _reset_exit_handlers() -> None:
    """Remove the exit handlers that a fork inherits from the server; register those of a new interpreter."""
    atexit._clear()
    atexit.register(logging.shutdown)
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]
    multiprocessing.util._finalizer_registry.clear()  # type: ignore[attr-defined]
    multiprocessing.process._children.clear()  # type: ignore[attr-defined]
    multiprocessing.util._run_after_forkers()  # type: ignore[attr-defined]


def _open_streams() -> None:
    """Open the standard streams on descriptors 0 to 2, line-buffered so that a kill loses no line."""
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", buffering=1, closefd=False, errors="backslashreplace")
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))  # `input` and debuggers compare with these.


def _set_thread_count() -> None:
    """Set torch's thread count to the value that torch would read from the environment at its import."""
    if torch := find_loaded("torch"):
        wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
        processors = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        torch.set_num_threads(int(wanted) if wanted.isdigit() and int(wanted) > 0 else processors)
