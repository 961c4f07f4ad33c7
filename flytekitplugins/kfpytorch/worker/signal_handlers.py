"""Signal handlers of a process that supervises others; the previous handlers are restored after the run."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any


class SigtermReceived(SystemExit):
    """This process received SIGTERM, for a preemption or a scale-in; this is not a failure."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


def raise_sigterm(*_: object) -> None:
    """Raise `SigtermReceived`, as the handler of SIGTERM."""
    raise SigtermReceived


def report_before_interrupt(report: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
    """Return a context manager in which SIGINT calls `report` and then the previous handler."""
    ends = signal.getsignal(signal.SIGINT)
    if not callable(ends):
        return contextlib.nullcontext()

    def interrupt(signum: int, frame: Any) -> None:
        report()
        ends(signum, frame)

    return handle_signal(signal.SIGINT, interrupt)


@contextlib.contextmanager
def handle_signal(signum: int, handler: Callable[..., None], *, replaces: bool = True) -> Iterator[None]:
    """Handle a signal while the context is active, and restore the previous handler afterwards.

    A handler that the user's program has set is replaced only if `replaces` is true.
    """
    if not replaces and signal.getsignal(signum) is not signal.SIG_DFL:
        yield
        return
    try:
        before = signal.signal(signum, handler)
    except ValueError:  # Not the main thread, which cannot handle signals.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signum, before)
