"""JSON messages with file descriptors over a local stream socket."""

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Message: TypeAlias = Mapping[str, Any]

_HEADER = struct.Struct("!I")
_MOST_DESCRIPTORS = 253  # SCM_MAX_FD of Linux.


def send(sock: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """Send one message with the file descriptors `fds`; raise an OSError if the other end is closed."""
    body = json.dumps(message).encode()
    header = _HEADER.pack(len(body))
    if fds:
        socket.send_fds(sock, [header], fds)
    else:
        sock.sendall(header)
    sock.sendall(body)


def receive(sock: socket.socket) -> tuple[Message, list[int]] | None:
    """Wait for the next message. Return it with its file descriptors; None if the other end is closed."""
    try:
        header, fds, _, _ = socket.recv_fds(sock, _HEADER.size, _MOST_DESCRIPTORS)
        header += _receive_exactly(sock, _HEADER.size - len(header)) if header else b""
        if len(header) < _HEADER.size:
            return None
        body = _receive_exactly(sock, _HEADER.unpack(header)[0])
    except ConnectionError:
        return None
    return (json.loads(body), fds) if body else None


def _receive_exactly(sock: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        part = sock.recv(size)
        if not part:
            return b""
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
