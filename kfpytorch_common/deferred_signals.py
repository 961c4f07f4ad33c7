"""Defer signals, so that an exception of a handler does not interrupt an operation that must complete.

A signal handler runs between any two instructions. If it raised an exception while a message is sent, sender
and receiver would wait forever. In a callback of the interpreter, the exception would be ignored.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Handler: TypeAlias = Callable[[int, Any], Any] | int | signal.Handlers


@dataclass
class DeferredSignals:
    """The signals that have arrived in a `defer_signals` context, and whose handlers have not run yet."""

    reader: int
    """A descriptor that is readable when a signal has arrived."""
    handlers: dict[int, Handler]
    arrived: list[int] = field(default_factory=list)

    def clear(self) -> None:
        """Empty the pipe `reader`, so that it is not readable until the next signal arrives."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.reader, 4096)

    def deliver(self) -> None:
        """Run the original handlers of the signals that have arrived. An exception of a handler is raised."""
        while self.arrived:
            signum = self.arrived.pop(0)
            handler = self.handlers[signum]
            if callable(handler):
                handler(signum, None)
            elif handler == signal.SIG_DFL:
                signal.signal(signum, signal.SIG_DFL)
                os.kill(os.getpid(), signum)


@contextlib.contextmanager
def defer_signals(
    *signums: signal.Signals, handlers: Mapping[int, Handler] | None = None
) -> Iterator[DeferredSignals]:
    """Defer the handlers of `signums` while the context is active, until the caller calls `deliver`.

    At the end of the context, signals that were not delivered are dropped. `handlers` contains handlers to
    run instead of those of the process. Only the main thread handles signals, so in other threads this
    function has no effect.
    """
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    waiting = DeferredSignals(reader, {})
    before: dict[int, Handler] = {}

    def on_signal(signum: int, _: object) -> None:
        waiting.arrived.append(signum)
        with contextlib.suppress(BlockingIOError):
            os.write(writer, b"!")

    try:
        for signum in signums:
            handler = signal.getsignal(signum)
            if handler is not None:  # C code installed the handler None, which could not be restored.
                with contextlib.suppress(ValueError):
                    before[signum] = handler
                    waiting.handlers[signum] = (handlers or {}).get(signum, handler)
                    signal.signal(signum, on_signal)
        yield waiting
    finally:
        for number, handler in before.items():
            with contextlib.suppress(ValueError):
                signal.signal(number, handler)
        os.close(reader)
        os.close(writer)
