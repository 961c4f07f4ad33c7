"""The terminal and log output of a group of processes."""

import contextlib
import os
import sys
from multiprocessing.connection import wait
from pathlib import Path
from typing import TextIO

from flytekitplugins.kfpytorch.worker import output_slots
from flytekitplugins.kfpytorch.worker.output_slots import KEPT, OutputSlot, OutputStream
from kfpytorch_common.output_lines import format_plain, with_prefix


class Console:
    """Copies the output of the processes that run a task to the terminal and to a log of each process."""

    def __init__(self, directory: Path | None, *, all_ranks: bool) -> None:
        self.directory = directory
        self._all_ranks = all_ranks
        self._streams: dict[int, OutputStream] = {}
        self.slots: list[OutputSlot] = []
        self._input_request: OutputSlot | None = None

    @staticmethod
    def print_line(text: str) -> None:
        """Print a message of the plugin to standard error."""
        print(f"kfpytorch  {text}", file=sys.stderr, flush=True)  # noqa: T201

    def open_slot(self, label: str, *, interactive: bool = False) -> OutputSlot:
        """Create and return an output slot: the streams and the log for the output of one process.

        Set `interactive` for rank 0. Its process then gets a pseudo-terminal, if standard output is a
        terminal and shows only the output of rank 0.
        """
        slot = OutputSlot(len(self.slots), label, shown=self._all_ranks)
        if self.directory is not None:
            slot.log = (self.directory / slot.log_name).open("wb", buffering=0)
        self.slots.append(slot)
        # The parent of this process may have closed its standard output.
        shows_terminal = not self._all_ranks and sys.stdout is not None and sys.stdout.isatty()
        has_terminal = interactive and shows_terminal
        open_streams = output_slots.open_terminal if has_terminal else output_slots.open_pipes
        self._streams |= {stream.fd: stream for stream in open_streams(slot)}
        return slot

    def set_rank(self, number: int, rank: int) -> None:
        """Set the rank of the process with slot `number`, for its output prefix and the name of its log."""
        slot = self.slots[number]
        first, slot.rank = slot.rank is None, rank
        slot.shown = self._all_ranks or rank == 0
        if first and self.directory is not None:
            with contextlib.suppress(OSError):
                (self.directory / slot.log_name).rename(self.directory / f"rank{rank}.log")

    def request_input(self, number: int) -> None:
        """Record that the process with the slot `number` requests a line from the user's terminal.

        Until the line arrives, `list_readable` includes the terminal, so that the caller polls it.
        """
        self._input_request = self.slots[number]

    def list_readable(self) -> list[int]:
        """Return the descriptors to poll: output streams, and the terminal if a process requested input."""
        return [*self._streams, *([sys.stdin.fileno()] if self._input_request else [])]

    def read_available(self, fd: int) -> None:
        """Copy the available data from `fd`, a descriptor in `list_readable`.

        Output of a process goes to its log and to the terminal. A line of the user goes to the process that
        requested it.
        """
        stream = self._streams.get(fd)
        if stream is None:
            self._forward_input(fd)
            return
        try:
            chunk = os.read(fd, output_slots.CHUNK)
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
        """Print and log lines that a process redraws with carriage returns, such as progress bars.

        Each line is shown at most once every 5 seconds. `now` is the time of the monotonic clock in seconds.
        """
        for stream in self._streams.values():
            if state := stream.take_redrawn(now):
                self._show_and_log(stream, state)

    def _forward_input(self, terminal: int) -> None:
        """Pass a line that the user typed to the process that requested it.

        At the end of the user's input, close the standard input of the process.
        """
        requester, self._input_request = self._input_request, None
        if requester is None or requester.answers is None:
            return
        line = os.read(terminal, KEPT)
        if line:
            with contextlib.suppress(BrokenPipeError):  # The process has ended.
                os.write(requester.answers, line)
        else:
            os.close(requester.answers)
            requester.answers = None

    def read_remaining(self) -> None:
        """Copy the remaining output after all processes have ended, and close their streams."""
        for fd in list(self._streams):
            while fd in self._streams:
                if wait([fd], 0):
                    self.read_available(fd)
                else:
                    self._close_stream(self._streams[fd])
        for slot in self.slots:
            if slot.answers is not None:
                os.close(slot.answers)
                slot.answers = None

    def append_text(self, rank: int | None, text: str) -> None:
        """Append `text` to the log of an ended rank, and print it if the terminal shows all ranks."""
        for slot in self.slots:
            if slot.rank == rank and text:
                lines = text.rstrip().encode(errors="replace") + b"\n"
                if self._all_ranks:
                    self._write(with_prefix(lines, slot.prefix), sys.stderr)
                self._store_lines(slot, lines)

    def close(self) -> None:
        """Close the log files of all processes."""
        for slot in self.slots:
            if slot.log is not None:
                slot.log.close()

    def _write_lines(self, stream: OutputStream, lines: bytes) -> None:
        if not lines:
            return
        lines = format_plain(lines)
        # Omit the part of the line that `show_redrawn` has shown already, such as a progress bar.
        rest = lines.removeprefix(stream.shown) if stream.shown else lines
        stream.shown = b""
        self._show_and_log(stream, rest)

    def _show_and_log(self, stream: OutputStream, lines: bytes) -> None:
        if stream.slot.shown and stream.terminal is None:
            self._write(with_prefix(lines, stream.slot.prefix), sys.stderr if stream.is_error else sys.stdout)
        self._store_lines(stream.slot, lines)

    @staticmethod
    def _write(data: bytes, out: TextIO | None) -> None:
        if out is None:  # The parent of this process closed the stream.
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
            slot.tail.append(lines[-KEPT:])
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
