"""One run of a container: started, stopped, its output taken down, its end understood.

Lives here: the processes and pipes of one run. Does not: whether there is another one; see `lifecycle`.
"""

from __future__ import annotations

import os
import signal
import time

from backend_plugin.embedded.shim import files, layout, logfile, program
from backend_plugin.embedded.shim.lifecycle import Ended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Spec = dict[str, Any]

_CHUNK = 1 << 16
# The largest pipe that an ordinary user gets is 1 MiB.
_PIPE_CHUNKS = 17
# What the kubelet takes of the file at terminationMessagePath.
_MESSAGE_BYTES = 4096


class Run:
    """A container's first process, from its start until nothing of it is left."""

    def __init__(self, spec: Spec, number: int, directory: str, oom_score: int | None) -> None:
        self.name: str = spec["name"]
        self.spec = spec
        self.began = time.time()
        self.status: int | None = None
        """What its first process ended with."""
        self.out_of_memory = False
        self._is_asked = False
        self.pid = 0
        self.streams: dict[int, bytes] = {}
        work = f"{directory}/{layout.WORK}/{self.name}"
        files.remove_tree(f"{work}.{number - 1}")
        cwd = spec["cwd"] or f"{work}.{number}"
        for path in (*spec["directories"], *(() if spec["cwd"] else (cwd,))):
            os.makedirs(path, exist_ok=True)  # noqa: PTH103 - pathlib costs a shim more than it brings.
        files.write_new(spec["termination"], b"")
        logs = f"{directory}/{layout.LOGS}/{self.name}"
        logfile.forget(logs, number - 1)
        self.log = logfile.LogFile(logs, number, *spec["log"])
        what = program.Program(spec["argv"], spec["env"], cwd)
        what.nice, what.oom_score = spec["nice"], oom_score
        self._start(what)

    def _start(self, what: program.Program) -> None:
        out, write_out = os.pipe()
        err, write_err = os.pipe()
        self.streams = {out: b"stdout", err: b"stderr"}
        for fd in self.streams:
            os.set_blocking(fd, False)
        try:
            self.pid = program.start(what, write_out, write_err)
        except (program.CannotStart, OSError):
            self.close()
            raise
        finally:
            os.close(write_out)
            os.close(write_err)

    def read(self, fd: int) -> int:
        """Take down what there is to read: how much that was, 0 at its end, -1 if nothing is there yet."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return -1
        if data:
            self.log.write(self.streams[fd], data)
        return len(data)

    def finish(self, fd: int) -> None:
        """Close a stream that has come to its end before the container."""
        del self.streams[fd]
        os.close(fd)

    def terminate(self) -> None:
        """Ask its first process to end, once."""
        if self.status is None and not self._is_asked:
            self._is_asked = True
            os.kill(self.pid, signal.SIGTERM)

    def close(self) -> None:
        """Take down the rest, as much as a pipe holds: whoever still has its other end may write for ever."""
        for fd in self.streams:
            for _ in range(_PIPE_CHUNKS):
                if self.read(fd) <= 0:
                    break
            os.close(fd)
        self.streams = {}
        self.log.close()

    def end(self) -> Ended:
        """How it ended; after `close`."""
        code = 137 if self.out_of_memory else exit_code(self.status or 0)
        reason = "OOMKilled" if self.out_of_memory else "Error" if code else "Completed"
        ended = Ended(code, reason, self.began, time.time())
        ended.message = self._message(code)
        return ended

    def _message(self, code: int) -> str:
        try:
            fd = files.open_regular(self.spec["termination"])
        except OSError:  # The program has removed it, or put something else in its place.
            said = b""
        else:
            size = os.fstat(fd).st_size
            said = os.pread(fd, _MESSAGE_BYTES, max(0, size - _MESSAGE_BYTES))
            os.close(fd)
        if not said and code and self.spec["message_from_log"]:
            return self.log.last_lines()
        return said.decode(errors="replace")


def exit_code(status: int) -> int:
    """What a shell would say of it: the code, or 128 and the signal."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
