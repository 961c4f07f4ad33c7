"""The terminal and log output of a group of processes."""

import collections
import contextlib
import fcntl
import os
import pty
import select
import shutil
import struct
import sys
import termios
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, TextIO

from kfpytorch_common.output_lines import LineBuffer, TerminalLines, format_plain, with_prefix

_CHUNK: Final = 1 << 20
_F_SETPIPE_SZ: Final = 1031
_KEPT: Final = 4096
# Minimum seconds between two displayed states of a line that is redrawn without a line end.
_REDRAWN: Final = 5.0


@dataclass
class OutputStream:
    """An output stream of a slot."""

    slot: "OutputSlot"
    fd: int
    is_error: bool
    lines: LineBuffer = field(default_factory=LineBuffer)
    terminal: TerminalLines | None = None
    redrawn_since: float | None = None
    """The time when the open line was first redrawn or last shown. None if it is not redrawn."""
    shown: bytes = b""
    """The state of the open line that was last shown."""


@dataclass
class OutputSlot:
    """A position for a process: its streams and its log, kept across restarts."""

    number: int
    label: str
    rank: int | None = None
    shown: bool = False
    terminal: bool = False
    answers: int | None = None
    """The descriptor to which the caller writes the lines that the process requested."""
    log: IO[bytes] | None = None
    tail: collections.deque[bytes] = field(default_factory=lambda: collections.deque(maxlen=8))

    @property
    def prefix(self) -> bytes:
        """The text before each line of its output."""
        name = self.label if self.rank is None else f"r{self.rank}"
        return f"[{name}] ".encode()

    @property
    def log_name(self) -> str:
        """The name of the log file until the rank is known."""
        return f"{self.label.replace(' ', '-')}.log"

    def list_last_lines(self) -> list[str]:
        """Return the last lines of its output."""
        text = b"".join(self.tail)[-_KEPT:]
        return [line for line in text.decode(errors="replace").splitlines() if line.strip()]


class Console:
    """Opens streams for slots, and copies their output to the terminal and to the logs."""

    def __init__(self, directory: Path | None, *, all_ranks: bool) -> None:
        self.directory = directory
        self._all_ranks = all_ranks
        self._streams: dict[int, OutputStream] = {}
        self.slots: list[OutputSlot] = []
        self._asking: OutputSlot | None = None

    @staticmethod
    def print_line(text: str) -> None:
        """Print a line of the plugin for the user."""
        print(f"kfpytorch  {text}", file=sys.stderr, flush=True)  # noqa: T201

    def open_slot(self, label: str, *, interactive: bool = False) -> tuple[OutputSlot, list[int]]:
        """Create a slot, and return it with descriptors for standard input, output and error.

        Only an interactive slot, that of rank 0, is connected to the terminal.
        """
        slot = OutputSlot(len(self.slots), label, shown=self._all_ranks)
        if self.directory is not None:
            slot.log = (self.directory / slot.log_name).open("wb", buffering=0)
        self.slots.append(slot)
        if interactive and not self._all_ranks and sys.stdout is not None and sys.stdout.isatty():
            return slot, self._open_terminal(slot)
        return slot, self._open_pipes(slot)

    def _open_pipes(self, slot: OutputSlot) -> list[int]:
        ends = [os.open(os.devnull, os.O_RDONLY)]
        for is_error in (False, True):
            reader, writer = os.pipe()
            with contextlib.suppress(OSError):  # A larger pipe is faster, but not required.
                fcntl.fcntl(reader, _F_SETPIPE_SZ, _CHUNK)
            self._add_stream(OutputStream(slot, reader, is_error))
            ends.append(writer)
        return ends

    def _open_terminal(self, slot: OutputSlot) -> list[int]:
        """Create a terminal for the slot, as wide as the user's without the prefix."""
        master, slave = pty.openpty()
        settings = termios.tcgetattr(slave)
        settings[1] &= ~termios.OPOST  # Output is passed on unchanged.
        settings[3] &= ~termios.ECHO  # The user's terminal echoes.
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        columns, rows = shutil.get_terminal_size()
        width = max(20, columns - len(b"[r0] "))
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, width, 0, 0))
        self._add_stream(OutputStream(slot, master, is_error=False, terminal=TerminalLines(b"[r0] ")))
        reader, slot.answers = os.pipe()
        slot.terminal = True
        return [reader, slave, os.dup(slave)]

    def _add_stream(self, stream: OutputStream) -> None:
        os.set_blocking(stream.fd, False)
        self._streams[stream.fd] = stream

    def set_rank(self, number: int, rank: int) -> None:
        """Set the rank of the process in a slot, which names its output and its log."""
        slot = self.slots[number]
        first, slot.rank = slot.rank is None, rank
        slot.shown = self._all_ranks or rank == 0
        if first and self.directory is not None:
            with contextlib.suppress(OSError):
                (self.directory / slot.log_name).rename(self.directory / f"rank{rank}.log")

    def request_input(self, number: int) -> None:
        """Read the user's terminal until a line arrives for the process in the slot."""
        self._asking = self.slots[number]

    def list_streams(self) -> list[int]:
        """Return the descriptors of open output streams."""
        return list(self._streams)

    def list_readable(self) -> list[int]:
        """Return the descriptors to poll."""
        return [*self._streams, *([sys.stdin.fileno()] if self._asking else [])]

    def read_available(self, fd: int) -> None:
        """Read the available data of `fd`."""
        stream = self._streams.get(fd)
        if stream is None:
            self._forward_input(fd)
            return
        try:
            chunk = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # The other side of a terminal is closed.
            chunk = b""
        if not chunk:
            self._close_stream(stream)
            return
        if stream.terminal is not None:
            self._write(stream.terminal.feed(chunk), sys.stdout)
        self._write_lines(stream, stream.lines.feed(chunk))

    def show_redrawn(self, now: float) -> None:
        """Show the state of lines that end in a carriage return, such as progress bars.

        Without this, a line would appear only after its line end. A state is shown at most once in
        `_REDRAWN` seconds, so that frequent updates do not fill the log.
        """
        for stream in self._streams.values():
            if not stream.lines.is_redrawn:
                stream.redrawn_since = None
            elif stream.redrawn_since is None:
                stream.redrawn_since = now
            elif now - stream.redrawn_since >= _REDRAWN:
                state = format_plain(stream.lines.format_open_line())
                if state.strip() and state != stream.shown:
                    stream.redrawn_since, stream.shown = now, state
                    self._show_and_log(stream, state)

    def _forward_input(self, terminal: int) -> None:
        """Pass on the line that the user typed; after an end of input, close the input of the process."""
        asking, self._asking = self._asking, None
        if asking is None or asking.answers is None:
            return
        line = os.read(terminal, _KEPT)
        if line:
            os.write(asking.answers, line)
        else:
            os.close(asking.answers)
            asking.answers = None

    def read_remaining(self) -> None:
        """Read all remaining output, then close the streams; all processes have ended."""
        for fd in list(self._streams):
            while fd in self._streams:
                if select.select([fd], [], [], 0)[0]:
                    self.read_available(fd)
                else:
                    self._close_stream(self._streams[fd])
        for slot in self.slots:
            if slot.answers is not None:
                os.close(slot.answers)
                slot.answers = None

    def append_text(self, rank: int | None, text: str) -> None:
        """Add text to the log of a rank that has ended, and show it if all ranks are shown."""
        for slot in self.slots:
            if slot.rank == rank and text:
                lines = text.rstrip().encode(errors="replace") + b"\n"
                if self._all_ranks:
                    self._write(with_prefix(lines, slot.prefix), sys.stderr)
                self._store_lines(slot, lines)

    def close(self) -> None:
        """Close the logs."""
        for slot in self.slots:
            if slot.log is not None:
                slot.log.close()

    def _write_lines(self, stream: OutputStream, lines: bytes) -> None:
        if not lines:
            return
        lines = format_plain(lines)
        # The final state of a progress bar may have been shown before its line end arrived.
        rest = lines.removeprefix(stream.shown) if stream.shown else lines
        stream.shown = b""
        self._show_and_log(stream, rest)

    def _show_and_log(self, stream: OutputStream, lines: bytes) -> None:
        if stream.slot.shown and stream.terminal is None:
            self._write(with_prefix(lines, stream.slot.prefix), sys.stderr if stream.is_error else sys.stdout)
        self._store_lines(stream.slot, lines)

    @staticmethod
    def _write(data: bytes, out: TextIO | None) -> None:
        if out is None:  # The parent of this process closed it.
            return
        raw = getattr(out, "buffer", None)
        if raw is None:  # A stream of a notebook accepts only text.
            out.write(data.decode(errors="replace"))
        else:
            out.flush()
            raw.write(data)
            raw.flush()

    @staticmethod
    def _store_lines(slot: OutputSlot, lines: bytes) -> None:
        if lines:
            slot.tail.append(lines[-_KEPT:])
            if slot.log is not None:
                try:
                    slot.log.write(lines)
                except OSError as full:
                    slot.log = None
                    print(f"kfpytorch  the log of {slot.label} ends here: {full}", file=sys.stderr)  # noqa: T201

    def _close_stream(self, stream: OutputStream) -> None:
        self._write_lines(stream, stream.lines.flush())
        self._streams.pop(stream.fd)
        os.close(stream.fd)
