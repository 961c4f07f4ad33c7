import fcntl
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfpytorch_common.deferred_signals import defer_signals
from kfpytorch_common.forkserver import messages
from kfpytorch_common.polling import poll_readable


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


@pytest.fixture
def large_pipe() -> Iterator[tuple[int, int]]:
    """Yield a pipe whose reading end is above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    small, writer = os.pipe()
    reader = fcntl.fcntl(small, fcntl.F_DUPFD_CLOEXEC, 1100)
    os.close(small)
    yield reader, writer
    os.close(reader)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_descriptor_above_1023_is_readable_with_data_and_at_its_end(large_pipe: tuple[int, int]) -> None:
    reader, writer = large_pipe
    assert poll_readable([reader], 0) == []
    os.write(writer, b"a")
    months = 3e6
    assert poll_readable([reader], months) == [reader]
    os.read(reader, 1)
    os.close(writer)
    assert poll_readable([reader], 8.0) == [reader]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
MESSAGES = st.dictionaries(st.text(max_size=5), JSON, max_size=3)


@given(st.integers(0, 253))
def test_descriptors_arrive_in_order_and_open(number: int) -> None:
    ours, theirs = socket.socketpair()
    null = os.open(os.devnull, os.O_RDONLY)
    with ours, theirs:
        messages.send(ours, {"a": 1}, [null] * number)
        received = messages.receive(theirs)
    os.close(null)
    assert (received[0], len(received[1])) == ({"a": 1}, number)
    for fd in received[1]:
        os.close(fd)


@given(MESSAGES, st.data())
def test_truncated_message_is_not_received(message: messages.Message, data: st.DataObject) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        messages.send(ours, message)
        whole = theirs.recv(1 << 16)
        ours.sendall(whole[: data.draw(st.integers(0, len(whole) - 1))])
        ours.shutdown(socket.SHUT_WR)
        assert messages.receive(theirs) is None
