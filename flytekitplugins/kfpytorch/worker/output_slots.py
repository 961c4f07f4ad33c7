"""Output slots: the log of each process that runs a task, and the pipes or terminal to which it writes."""

import collections
import contextlib
import fcntl
import os
import pty
import shutil
import struct
import termios
from dataclasses import dataclass, field
from typing import IO, Final

from kfpytorch_common.output_lines import LineBuffer, TerminalLines, format_plain

CHUNK: Final = 1 << 20
"""The size of a pipe in bytes, and the maximum number of bytes of one read."""
KEPT: Final = 4096
"""The maximum number of bytes of the end of its output that a slot keeps for a failure report."""
_F_SETPIPE_SZ: Final = 1031
# Minimum number of seconds between two displayed states of a line that is redrawn, such as a progress bar.
# Otherwise the states would fill the log.
_REDRAWN: Final = 5.0


@dataclass
class OutputStream:
    """A stream from which this process reads the standard output or standard error of another process."""

    slot: "OutputSlot"
    fd: int
    is_error: bool
    lines: LineBuffer = field(default_factory=LineBuffer)
    terminal: TerminalLines | None = None
    redrawn_since: float | None = None
    """The time when the incomplete line was first redrawn or last printed; None if it is not redrawn."""
    shown: bytes = b""

    def take_redrawn(self, now: float) -> bytes:
        """Return the text of a redrawn line, such as a progress bar, at most once in `_REDRAWN` seconds.

        Return no bytes within `_REDRAWN` seconds after the last text, or if the text is blank or unchanged.
        `now` is the time of the monotonic clock in seconds.
        """
        if not self.lines.is_redrawn:
            self.redrawn_since = None
            return b""
        if self.redrawn_since is None:
            self.redrawn_since = now
        if now - self.redrawn_since < _REDRAWN:
            return b""
        state = format_plain(self.lines.format_open_line())
        if not state.strip() or state == self.shown:
            return b""
        self.redrawn_since, self.shown = now, state
        return state


@dataclass
class OutputSlot:
    """The log and the last output of one process of a run. A restarted worker keeps its slot."""

    number: int
    label: str
    rank: int | None = None
    shown: bool = False
    terminal: bool = False
    ends: list[int] = field(default_factory=list)
    """Descriptors that become the standard streams of the process; the parent closes them after the start."""
    answers: int | None = None
    """The descriptor to which this process writes the user's input; None if the slot has no input."""
    log: IO[bytes] | None = None
    tail: collections.deque[bytes] = field(default_factory=lambda: collections.deque(maxlen=8))

    @property
    def prefix(self) -> bytes:
        """The text before each line of the process's output."""
        name = self.label if self.rank is None else f"r{self.rank}"
        return f"[{name}] ".encode()

    @property
    def log_name(self) -> str:
        """The name of the log file until the rank is known; the name is then, for example, ``rank0.log``."""
        return f"{self.label.replace(' ', '-')}.log"

    def list_last_lines(self) -> list[str]:
        """Return the last lines of the process's output."""
        text = b"".join(self.tail)[-KEPT:]
        return [line for line in text.decode(errors="replace").splitlines() if line.strip()]


def open_pipes(slot: OutputSlot) -> list[OutputStream]:
    """Create pipes for the output of the process of `slot`, and return the streams that read from them.

    The standard input of the process is empty.
    """
    streams = []
    slot.ends = [os.open(os.devnull, os.O_RDONLY)]
    for is_error in (False, True):
        reader, writer = os.pipe()
        with contextlib.suppress(OSError):  # A larger pipe is faster, but not required.
            fcntl.fcntl(reader, _F_SETPIPE_SZ, CHUNK)
        os.set_blocking(reader, False)
        streams.append(OutputStream(slot, reader, is_error))
        slot.ends.append(writer)
    return streams


def open_terminal(slot: OutputSlot) -> list[OutputStream]:
    """Create a pseudo-terminal for the process of `slot`, and return the one stream that reads its output.

    The pseudo-terminal is narrower than the user's terminal, which shows the prefix ``[r0]`` before each
    line.
    """
    master, slave = pty.openpty()
    settings = termios.tcgetattr(slave)
    settings[1] &= ~termios.OPOST  # Do not change line ends in the output.
    settings[3] &= ~termios.ECHO  # The user's terminal echoes the input already.
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    columns, rows = shutil.get_terminal_size()
    width = max(20, columns - len(b"[r0] "))
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, width, 0, 0))
    os.set_blocking(master, False)
    stream = OutputStream(slot, master, is_error=False, terminal=TerminalLines(b"[r0] "))
    reader, slot.answers = os.pipe()
    slot.terminal, slot.ends = True, [reader, slave, os.dup(slave)]
    return [stream]
