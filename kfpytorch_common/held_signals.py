"""Signals that wait until it is their turn, so that what must be whole is not cut in half.

A handler that raises does so between any two steps: between the halves of a message, so that both ends wait
for ever; or in a callback of the interpreter's, which passes over the exception.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Handler: TypeAlias = Callable[[int, Any], Any] | int | signal.Handlers


@dataclass
class Held:
    """The signals that have arrived and wait."""

    reader: int
    """Readable when there are any."""
    handlers: dict[int, Handler]
    """Whose turn it will be."""
    arrived: list[int] = field(default_factory=list)

    def fileno(self) -> int:
        """For `poll`."""
        return self.reader

    def heard(self) -> None:
        """Make the descriptor wait for the next one."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.reader, 4096)

    def deliver(self) -> None:
        """Do what would have been done without us; raises what the handlers raise."""
        while self.arrived:
            signum = self.arrived.pop(0)
            handler = self.handlers[signum]
            if callable(handler):
                handler(signum, None)
            elif handler == signal.SIG_DFL:
                signal.signal(signum, signal.SIG_DFL)
                os.kill(os.getpid(), signum)


@contextlib.contextmanager
def held(*signums: signal.Signals) -> Iterator[Held]:
    """Have these signals wait; what has not been delivered by the end is forgotten.

    Only the main thread handles signals: in another one nothing is held.
    """
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    waiting = Held(reader, {})

    def note(signum: int, _: object) -> None:
        waiting.arrived.append(signum)
        with contextlib.suppress(BlockingIOError):
            os.write(writer, b"!")

    try:
        for signum in signums:
            handler = signal.getsignal(signum)
            if handler is not None:  # What C has installed could not be put back.
                with contextlib.suppress(ValueError):
                    waiting.handlers[signum] = handler
                    signal.signal(signum, note)
        yield waiting
    finally:
        for number, handler in waiting.handlers.items():
            with contextlib.suppress(ValueError):
                signal.signal(number, handler)
        os.close(reader)
        os.close(writer)
