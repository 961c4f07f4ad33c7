"""Writes the output of a container to log files with timestamps and limited size.

The format is that of CRI: ``<time> stdout|stderr F|P <text>``. F marks a full line or its last part, P
another part of a long line. `pod_logs` reads these files.
"""

from __future__ import annotations

import os
import time

from backend_plugin.embedded.shim.files import open_regular
from backend_plugin.embedded.shim.layout import format_log_name

# The limits of the kubelet for the log of one container run.
SEGMENT_BYTES = 10 * 1024 * 1024
SEGMENTS = 5
# The line limit of containerd.
LONGEST_LINE = 16 * 1024
# The offset of the text in a line: 30 characters for the time, 6 stream, 1 tag and 3 spaces.
TEXT_AT = 40
# The limits of the kubelet for a termination message from the log.
MESSAGE_LINES = 80
MESSAGE_BYTES = 2048


def remove_old_logs(directory: str, before: int) -> None:
    """Remove the log files in `directory` of the container runs with numbers below `before`."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 - see below.
    except OSError:  # The directory does not exist.
        return
    for name in names:
        run = name.partition(".")[0]
        if run.isdigit() and int(run) < before:
            _remove_file(f"{directory}/{name}")


class LogFile:
    """The log of one container run, in `kept` segments of about `limit` bytes. Older segments are removed."""

    def __init__(self, directory: str, run: int, limit: int = SEGMENT_BYTES, kept: int = SEGMENTS) -> None:
        self._directory = directory
        self._run = run
        self._limit = limit
        self._kept = kept
        self._segment = 0
        self._size = 0
        self._rests: dict[bytes, bytes] = {}
        os.makedirs(directory, exist_ok=True)  # noqa: PTH103 - pathlib is too large for a shim.
        self._fd = self._open_segment(self._segment)

    def write(self, stream: bytes, data: bytes) -> None:
        """Write output of ``stdout`` or ``stderr`` to the log. An incomplete line is buffered."""
        data = self._rests.pop(stream, b"") + data
        *lines, rest = data.split(b"\n")
        stamp = _format_time()
        whole, part = stamp + stream + b" F ", stamp + stream + b" P "
        out = []
        for line in lines:
            while len(line) > LONGEST_LINE:
                out.append(part + line[:LONGEST_LINE])
                line = line[LONGEST_LINE:]  # noqa: PLW2901 - the rest of the line.
            out.append(whole + line)
        while len(rest) > LONGEST_LINE:
            out.append(part + rest[:LONGEST_LINE])
            rest = rest[LONGEST_LINE:]
        if rest:
            self._rests[stream] = rest
        if out:
            self._append(b"\n".join(out) + b"\n")

    def close(self) -> None:
        """Write the buffered incomplete lines and close the file."""
        for stream in list(self._rests):
            self.write(stream, b"\n")
        os.close(self._fd)

    def read_last_lines(self) -> str:
        """Return the end of the log for a termination message: at most 80 lines and 2,048 bytes."""
        lines: list[bytes] = []
        for segment in range(max(0, self._segment - 1), self._segment + 1):
            lines += self._read_tail(segment)
        return b"\n".join(lines[-MESSAGE_LINES:])[-MESSAGE_BYTES:].decode(errors="replace")

    def _read_tail(self, segment: int) -> list[bytes]:
        try:
            fd = open_regular(self._get_path(segment))
        except OSError:  # A program may remove its own log.
            return []
        try:
            size = os.fstat(fd).st_size
            begin = max(0, size - MESSAGE_LINES * TEXT_AT - MESSAGE_BYTES)
            data = os.pread(fd, size - begin, begin)
        finally:
            os.close(fd)
        lines = data.split(b"\n")[:-1]
        return [line[TEXT_AT:] for line in (lines[1:] if begin else lines)]

    def _append(self, lines: bytes) -> None:
        if self._size and self._size + len(lines) > self._limit:
            self._rotate()
        try:
            self._size += os.write(self._fd, lines)
        except OSError:  # The disk is full. The container continues without its log.
            return

    def _rotate(self) -> None:
        try:
            following = self._open_segment(self._segment + 1)
        except OSError:  # Continue with the old segment.
            return
        os.close(self._fd)
        self._fd = following
        self._segment += 1
        self._size = 0
        if self._segment >= self._kept:
            _remove_file(self._get_path(self._segment - self._kept))

    def _open_segment(self, segment: int) -> int:
        return open_regular(self._get_path(segment), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def _get_path(self, segment: int) -> str:
        return f"{self._directory}/{format_log_name(self._run, segment)}"


def _format_time() -> bytes:
    second, nano = divmod(time.time_ns(), 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(second))}.{nano:09}Z ".encode()


def _remove_file(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108 - see above.
    except OSError:  # The file was removed or protected by the program.
        return
