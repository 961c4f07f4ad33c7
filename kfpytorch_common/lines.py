"""Bytes of a process's output as whole lines: never torn, never lost, prefixed in bulk."""

import re

_LONGEST = 16 * 1024 * 1024
# Control sequences, and operating system commands (titles, links) up to their end on the same line.
_CSI = rb"\x1b\[[0-?]*[ -/]*[@-~]"
_OSC = rb"\x1b\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)"
_ESCAPES = re.compile(_CSI + rb"|" + _OSC)


class Lines:
    """Collects what a stream says until its lines are whole."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._held = 0
        self.is_redrawn = False
        """True if the open line contains a carriage return."""

    def feed(self, chunk: bytes) -> bytes:
        """The lines that are whole with `chunk`, each with its line end; the rest is kept.

        A line of more than 16 MiB is given out in pieces, so that a stream without line ends
        cannot fill the memory.
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
            return whole + self.rest()
        return whole

    def state(self) -> bytes:
        """Return the last state of the open line, with a line end; the line stays open.

        Earlier states are forgotten, so that a bar that is redrawn for days needs no memory.
        """
        held = b"".join(self._parts)
        line = _last_state(held)
        # What comes next replaces the line if it ended in a carriage return, else it continues it.
        self._parts = [b"\r" + line + (b"\r" if held.endswith(b"\r") else b"")]
        self._held = len(self._parts[0])
        return line + b"\n"

    def rest(self) -> bytes:
        """What is left of a line that will never end, with a line end."""
        left = b"".join(self._parts)
        self._parts, self._held, self.is_redrawn = [], 0, False
        return left + b"\n" if left else b""


def prefixed(lines: bytes, prefix: bytes) -> bytes:
    """Whole lines with `prefix` before each."""
    if not lines:
        return b""
    return prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n"


def plain(lines: bytes) -> bytes:
    """Lines as a file should hold them: no colours, and of a redrawn line the last state."""
    if b"\x1b" in lines:
        lines = _ESCAPES.sub(b"", lines)
    return b"\n".join(map(_last_state, lines.split(b"\n"))) if b"\r" in lines else lines


def _last_state(line: bytes) -> bytes:
    """Of a line that was redrawn, what stood there last."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class TerminalLines:
    """Prefixes a stream meant for a terminal, without waiting for line ends.

    Cursor movements pass; a prefix is put before the first visible character after each return
    to the first column, so that a redrawn progress bar keeps it.
    """

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._at_start = True
        self._partial = b""

    def feed(self, chunk: bytes) -> bytes:
        """`chunk` with prefixes; an escape sequence that is cut off waits for its end."""
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
    # The end of an operating system command begins with another escape.
    before = text.rfind(b"\x1b", 0, last) if last == len(text) - 1 else -1
    for start in (before, last):
        if start >= 0 and _OPEN_ESCAPE.match(text, start):
            return text[:start], text[start:]
    return text, b""
