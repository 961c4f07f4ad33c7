import fcntl
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfpytorch_common.deferred_signals import defer_signals
from kfpytorch_common.forkserver import client, messages

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@pytest.fixture
def count_signals():
    """Yield the list of signals that the handler of this process received."""
    received = []
    before = signal.signal(signal.SIGINT, lambda signum, _: received.append(signum))
    yield received
    signal.signal(signal.SIGINT, before)


def test_signal_is_deferred_until_it_is_delivered(count_signals):
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


def test_many_undelivered_signals_do_not_block(count_signals):
    with defer_signals(signal.SIGINT) as signals:
        for _ in range(70_000):
            signal.raise_signal(signal.SIGINT)
        signals.arrived[10:] = []
        signals.deliver()
    assert len(count_signals) == 10


def test_signal_without_a_handler_ends_the_process_on_delivery():
    code = (
        "import os, signal; from kfpytorch_common.deferred_signals import defer_signals\n"
        "with defer_signals(signal.SIGTERM, signal.SIGUSR1) as signals:\n"
        "    signal.raise_signal(signal.SIGTERM); print('held', flush=True); signals.deliver(); print('no')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("held\n", -signal.SIGTERM)


def test_ignored_signal_stays_ignored(count_signals):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with defer_signals(signal.SIGINT) as signals:
        os.kill(os.getpid(), signal.SIGINT)
        signals.deliver()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_signals_are_not_deferred_in_another_thread(count_signals):
    def defer_in_thread():
        with defer_signals(signal.SIGINT) as signals:
            os.kill(os.getpid(), signal.SIGINT)
            signals.deliver()

    thread = threading.Thread(target=defer_in_thread)
    thread.start()
    thread.join()
    assert count_signals == [signal.SIGINT]


@pytest.fixture
def large_socket():
    """Yield a pair of sockets, the first of which has a descriptor above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    small, other = socket.socketpair()
    with small, other, socket.socket(fileno=fcntl.fcntl(small, fcntl.F_DUPFD_CLOEXEC, 1100)) as large:
        yield large, other
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_client_with_a_descriptor_above_1023_waits_for_exits_and_for_the_end(large_socket):
    own_end, server_end = large_socket
    connected = client.Client(own_end)
    assert connected.wait_for_exits(0) == []
    messages.send(server_end, {"op": "exited", "child": 0, "code": 7})
    months = 3e6
    assert connected.wait_for_exits(months) == [(0, 7)]
    server_end.shutdown(socket.SHUT_RDWR)
    with pytest.raises(client.ForkServerGone):
        connected.wait_for_exits(8.0)


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


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=3), st.data())
def test_truncated_message_is_not_received(message: messages.Message, data: st.DataObject) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        messages.send(ours, message)
        whole = theirs.recv(1 << 16)
        ours.sendall(whole[: data.draw(st.integers(0, len(whole) - 1))])
        ours.shutdown(socket.SHUT_WR)
        assert messages.receive(theirs) is None
