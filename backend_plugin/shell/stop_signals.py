"""Signals that end a command: SIGTERM, SIGHUP and SIGINT."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

_STOP: Final = (signal.SIGTERM, signal.SIGHUP)


def list_stop_signals() -> Sequence[signal.Signals]:
    """Return the signals on which a command stops; without SIGHUP if the process ignores it (nohup)."""
    is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT, *([] if is_ignored else [signal.SIGHUP]))


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise `SystemExit` on SIGTERM and SIGHUP, so that open context managers clean up.

    The first signal starts the cleanup, and later ones do not interrupt it. Signals
    that the process ignores or handles otherwise are left alone.
    """
    handled = [each for each in _STOP if signal.getsignal(each) == signal.SIG_DFL]

    def stop(number: int, _: object) -> NoReturn:
        for each in handled:
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for each in handled:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each in handled:
            signal.signal(each, signal.SIG_DFL)
