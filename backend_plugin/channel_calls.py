"""Sends the calls of the client over a channel to the server."""

from collections.abc import Generator
from typing import Any

from backend_plugin.client_calls import Answer, Call
from backend_plugin.connection import open_channel
from backend_plugin.server_address import Address


def send(call: Call[Answer], server: Address) -> Answer:
    """Return the answer to a call.

    Raises:
        RequestFailed: If the call fails.
    """
    with open_channel(server) as (channel, metadata):
        method = channel.unary_unary(call.path, **call.serializers)
        answer: Answer = method(call.request, metadata=metadata, timeout=call.seconds)
        return answer


def stream(call: Call[Answer], server: Address) -> Generator[Answer, None, None]:
    """Yield the answers to a call; the call is cancelled when the generator is closed.

    Raises:
        RequestFailed: If the call fails.
    """
    with open_channel(server) as (channel, metadata):
        method: Any = channel.unary_stream(call.path, **call.serializers)
        answers = method(call.request, metadata=metadata, timeout=call.seconds)
        try:
            yield from answers
        finally:
            answers.cancel()
