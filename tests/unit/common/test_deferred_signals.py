import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from kfpytorch_common.deferred_signals import defer_signals


@pytest.fixture
def count_signals() -> Iterator[list[int]]:
    """Yield the list of signals that the handler of this process received."""
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda signum, _: received.append(signum))
    yield received
    signal.signal(signal.SIGINT, before)


def test_signal_is_deferred_until_it_is_delivered(count_signals: list[int]) -> None:
    with defer_signals(signal.SIGINT) as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert count_signals == []
        assert select.select([signals.reader], [], [], 1)[0] == [signals.reader]
        signals.clear()
        assert select.select([signals.reader], [], [], 0)[0] == []
        signals.deliver()
        assert count_signals == [signal.SIGINT]
        signals.deliver()
        os.kill(os.getpid(), signal.SIGINT)
    # A signal that is not delivered is dropped, and later ones are handled as before.
    assert count_signals == [signal.SIGINT]
    os.kill(os.getpid(), signal.SIGINT)
    assert count_signals == [signal.SIGINT] * 2


def test_many_undelivered_signals_do_not_block(count_signals: list[int]) -> None:
    with defer_signals(signal.SIGINT) as signals:
        for _ in range(70_000):
            signal.raise_signal(signal.SIGINT)
        signals.arrived[10:] = []
        signals.deliver()
    assert len(count_signals) == 10


def test_signal_without_a_handler_ends_the_process_on_delivery() -> None:
    code = (
        "import os, signal; from kfpytorch_common.deferred_signals import defer_signals\n"
        "with defer_signals(signal.SIGTERM, signal.SIGUSR1) as signals:\n"
        "    signal.raise_signal(signal.SIGTERM); print('held', flush=True); signals.deliver(); print('no')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("held\n", -signal.SIGTERM)


def test_ignored_signal_stays_ignored(count_signals: list[int]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with defer_signals(signal.SIGINT) as signals:
        os.kill(os.getpid(), signal.SIGINT)
        signals.deliver()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_signals_are_not_deferred_in_another_thread(count_signals: list[int]) -> None:
    def defer_in_thread() -> None:
        with defer_signals(signal.SIGINT) as signals:
            os.kill(os.getpid(), signal.SIGINT)
            signals.deliver()

    thread = threading.Thread(target=defer_in_thread)
    thread.start()
    thread.join()
    assert count_signals == [signal.SIGINT]
