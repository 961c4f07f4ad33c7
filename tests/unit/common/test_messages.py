"""Messages arrive completely with their descriptors, or not at all."""

import os
import socket

from hypothesis import given
from hypothesis import strategies as st

from kfpytorch_common.forkserver import messages

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
