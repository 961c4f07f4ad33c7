"""Defer signals, so that a handler that raises does not interrupt an operation that must complete.

A handler runs between any two instructions. An exception while a message is sent would leave both ends
waiting forever. In a callback of the interpreter, the exception would be ignored.
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
    """The signals that have arrived within `defer_signals`, until `deliver` runs their handlers."""

    reader: int
    """A descriptor that is readable when a signal has arrived."""
    handlers: dict[int, Handler]
    arrived: list[int] = field(default_factory=list)

    def clear(self) -> None:
        """Read the pending bytes of `reader`, so that it becomes readable with the next signal."""
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
    """Defer `signums` while the context is active, until the caller delivers them (`deliver`).

    Signals that are not delivered are dropped at its end. A signal in `handlers` is delivered to that handler
    instead of the handler of the process. Only the main thread handles signals, so in other threads this
    function defers none.
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
