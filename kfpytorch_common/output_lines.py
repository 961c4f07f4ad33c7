"""Split the output of a process into complete lines, and add prefixes to them."""

import re

_LONGEST = 16 * 1024 * 1024
# Control sequences, and operating system commands (titles, links) that end on the same line.
_CSI = rb"\x1b\[[0-?]*[ -/]*[@-~]"
_OSC = rb"\x1b\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)"
_ESCAPES = re.compile(_CSI + rb"|" + _OSC)


class LineBuffer:
    """Buffers the output of a stream until its lines are complete."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._held = 0
        self.is_redrawn = False
        """True if the incomplete line contains a carriage return."""

    def feed(self, chunk: bytes) -> bytes:
        """Return the lines that `chunk` completes, with their line ends, and keep the rest of `chunk`.

        A line of more than 16 MiB is returned in pieces, so that a stream without line ends does not fill
        the memory.
        """
        end = chunk.rfind(b"\n") + 1
        if end:
            whole = b"".join((*self._parts, chunk[:end]))
            self._parts, self._held, self.is_redrawn = [], 0, False
            chunk = chunk[end:]
        else:
            whole = b""
        if chunk:
            self._parts.append(chunk)
            self._held += len(chunk)
            self.is_redrawn = self.is_redrawn or b"\r" in chunk
        if self._held > _LONGEST:
            return whole + self.flush()
        return whole

    def format_open_line(self) -> bytes:
        """Return the incomplete line with a line end, without text that carriage returns have overwritten.

        The buffer keeps the line and drops the overwritten text, so a progress bar does not fill the memory.
        """
        held = b"".join(self._parts)
        line = _get_last_state(held)
        # New data replaces the line if it ended in a carriage return, and otherwise continues it.
        self._parts = [b"\r" + line + (b"\r" if held.endswith(b"\r") else b"")]
        self._held = len(self._parts[0])
        return line + b"\n"

    def flush(self) -> bytes:
        """Return the incomplete line, if any, with a line end, and clear the buffer."""
        left = b"".join(self._parts)
        self._parts, self._held, self.is_redrawn = [], 0, False
        return left + b"\n" if left else b""


def with_prefix(lines: bytes, prefix: bytes) -> bytes:
    """Return `lines` with `prefix` before each line; `lines` must be empty or end with a line end."""
    if not lines:
        return b""
    return prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n"


def format_plain(lines: bytes) -> bytes:
    """Return `lines` for a log file: without colours, and without text that carriage returns overwrite."""
    if b"\x1b" in lines:
        lines = _ESCAPES.sub(b"", lines)
    return b"\n".join(map(_get_last_state, lines.split(b"\n"))) if b"\r" in lines else lines


def _get_last_state(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class TerminalLines:
    """Adds a prefix to the lines of a terminal stream without waiting for line ends.

    The prefix precedes the first visible character after each line end or carriage return.
    """

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._at_start = True
        self._partial = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return `chunk` with a prefix on each line; keep an incomplete escape sequence for the next call."""
        text, self._partial = _split_partial_escape(self._partial + chunk)
        out: list[bytes] = []
        for piece in _TOKENS.findall(text):
            if piece in (b"\n", b"\r"):
                self._at_start = True
            elif not piece.startswith(b"\x1b") and self._at_start:
                out.append(self._prefix)
                self._at_start = False
            out.append(piece)
        return b"".join(out)


_TOKENS = re.compile(rb"\n|\r|" + _CSI + rb"|" + _OSC + rb"|\x1b[^\[\]\x1b]|[^\n\r\x1b]+|\x1b")
_OPEN_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|\](?=([^\x07\x1b\r\n]{0,4096}))\1\x1b?)?\Z")


def _split_partial_escape(text: bytes) -> tuple[bytes, bytes]:
    last = text.rfind(b"\x1b")
    # The end of an operating system command starts with another escape.
    before = text.rfind(b"\x1b", 0, last) if last == len(text) - 1 else -1
    for start in (before, last):
        if start >= 0 and _OPEN_ESCAPE.match(text, start):
            return text[:start], text[start:]
    return text, b""
