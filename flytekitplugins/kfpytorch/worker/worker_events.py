"""The events that a worker sends to the console of its caller, and its input from the user's terminal."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

EventSender: TypeAlias = Callable[[Mapping[str, Any]], None]


def build_event_sender(fd: int, slot: int) -> EventSender:
    """Return a function that sends an event about the worker in a slot to the caller."""

    def send_event(event: Mapping[str, Any]) -> None:
        # Shorter than PIPE_BUF, so that events of several workers do not mix in one pipe.
        with contextlib.suppress(BrokenPipeError):
            os.write(fd, json.dumps({"slot": slot, **event}).encode() + b"\n")

    return send_event


def replace_standard_input(send_event: EventSender) -> None:
    """Make `sys.stdin` request each line from the caller, which owns the terminal."""
    sys.stdin = _TerminalInput(send_event)


class _TerminalInput:
    """Standard input of rank 0 on a terminal; requests a line when the program reads one.

    The terminal belongs to the caller. `breakpoint()` and `input()` work, and input that the program does
    not read stays in the terminal.
    """

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, send_event: EventSender) -> None:
        self._send_event = send_event
        self._stream = open(0, closefd=False, errors="replace")  # noqa: SIM115 - open as long as the process.

    def readline(self, size: int = -1) -> str:
        sys.stdout.flush()
        self._send_event({"event": "input"})
        return self._stream.readline(size)

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return True
