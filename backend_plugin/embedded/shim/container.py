"""Runs a container once: starts it, writes its output to the log and reports its termination."""

from __future__ import annotations

import os
import signal
import time

from backend_plugin.embedded.shim import files, layout, logfile, program
from backend_plugin.embedded.shim.lifecycle import RunExit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Spec = dict[str, Any]

_CHUNK = 1 << 16
# One chunk more than the largest pipe that an unprivileged user can create (1 MiB).
_PIPE_CHUNKS = 17
# The limit of the kubelet for the file at terminationMessagePath.
_MESSAGE_BYTES = 4096


class ContainerRun:
    """A container run, from its start until all its processes have ended."""

    def __init__(self, spec: Spec, number: int, directory: str) -> None:
        self.name: str = spec["name"]
        self.spec = spec
        self.began = time.time()
        self.status: int | None = None
        """The wait status of the first process, from `os.waitpid`; None until this process has ended."""
        self.out_of_memory = False
        self._is_sigterm_sent = False
        self.pid = 0
        self.streams: dict[int, bytes] = {}
        work = f"{directory}/{layout.WORK}/{self.name}"
        files.remove_tree(f"{work}.{number - 1}")
        cwd = spec["cwd"] or f"{work}.{number}"
        for path in (*spec["directories"], *(() if spec["cwd"] else (cwd,))):
            os.makedirs(path, exist_ok=True)  # noqa: PTH103 - pathlib is too large for a shim.
        files.write_new(spec["termination"], b"")
        logs = f"{directory}/{layout.LOGS}/{self.name}"
        logfile.remove_old_logs(logs, number - 1)
        self.log = logfile.LogFile(logs, number)
        self._start_program(cwd)

    def _start_program(self, cwd: str) -> None:
        out, write_out = os.pipe()
        err, write_err = os.pipe()
        self.streams = {out: b"stdout", err: b"stderr"}
        for fd in self.streams:
            os.set_blocking(fd, False)
        try:
            self.pid = program.start_program(self.spec, cwd, (write_out, write_err))
        except (program.CannotStart, OSError):
            self.close()
            raise
        finally:
            os.close(write_out)
            os.close(write_err)

    def read_output(self, fd: int) -> int:
        """Write the available output of the stream `fd` to the log.

        Return the number of bytes; 0 at the end of the stream, -1 if no output is available now.
        """
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return -1
        if data:
            self.log.write(self.streams[fd], data)
        return len(data)

    def close_stream(self, fd: int) -> None:
        """Close an output stream that ended before the container did."""
        del self.streams[fd]
        os.close(fd)

    def terminate(self) -> None:
        """Send SIGTERM to the first process, unless it has ended or SIGTERM was already sent."""
        if self.status is None and not self._is_sigterm_sent:
            self._is_sigterm_sent = True
            os.kill(self.pid, signal.SIGTERM)

    def close(self) -> None:
        """Write the remaining output to the log and close the files.

        The amount is limited to about the size of a pipe per stream, because a process may keep writing.
        """
        for fd in self.streams:
            for _ in range(_PIPE_CHUNKS):
                if self.read_output(fd) <= 0:
                    break
            os.close(fd)
        self.streams = {}
        self.log.close()

    def build_exit(self) -> RunExit:
        """Return the termination of the run. Call it after `close`."""
        # As in a shell, the exit code after a signal is 128 plus the number of the signal.
        status = self.status or 0
        code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        code = 137 if self.out_of_memory else code
        reason = "OOMKilled" if self.out_of_memory else "Error" if code else "Completed"
        return RunExit(code, reason, self.began, time.time(), self._read_message(code))

    def _read_message(self, code: int) -> str:
        try:
            fd = files.open_regular(self.spec["termination"])
        except OSError:  # The program removed or replaced the file.
            message = b""
        else:
            size = os.fstat(fd).st_size
            message = os.pread(fd, _MESSAGE_BYTES, max(0, size - _MESSAGE_BYTES))
            os.close(fd)
        if not message and code and self.spec["message_from_log"]:
            return self.log.read_last_lines()
        return message.decode(errors="replace")
