"""Limits that keep one client from using up the memory, threads or time of others."""

import asyncio
import socket
import struct
import threading

import grpc
import pytest
from test_rpc_middleware import scraped
from tiny_service import call, calling, code_of, health, serving, wait_until

from backend_plugin.shell import metrics

_SETTINGS = 4
_MAX_CONCURRENT_STREAMS = 3
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack(">IBBI", 0, _SETTINGS, 0, 0)[1:]


async def test_total_size_of_concurrent_requests_is_limited() -> None:
    async with calling(limit=10, request_bytes=2_500) as (served, channel):
        running = [asyncio.ensure_future(call(channel, "Wait", b"x" * 1_000)) for _ in range(2)]
        await wait_until(lambda: served.tiny.waiting == 2)
        refused, _ = await code_of(served.echo(channel, b"x" * 1_000))
        small = await served.echo(channel, b"x" * 100)
        alive = await health(channel, "liveness")
        served.tiny.go_on.set()
        await asyncio.gather(*running)
        # A large request is accepted if no other one is running.
        result = [refused, len(small), alive, len(await served.echo(channel, b"x" * 3_000))]
    assert result == [EXHAUSTED, 100, "SERVING", 3_000]


async def test_connection_has_a_limited_number_of_streams() -> None:
    async with serving() as served:
        host, _, port = served.address.partition(":")
        result = await asyncio.to_thread(_settings, host, int(port))
    assert result[_MAX_CONCURRENT_STREAMS] == 256


def _settings(host: str, port: int) -> dict[int, int]:
    """Return the first SETTINGS frame of a server."""
    with socket.create_connection((host, port), timeout=60) as connection:
        connection.sendall(PREFACE)
        stream = connection.makefile("rb")
        while True:
            head = stream.read(9)
            payload = stream.read(int.from_bytes(head[:3], "big"))
            if head[3] == _SETTINGS:
                return dict(struct.iter_unpack(">HI", payload))


def test_idle_metrics_client_frees_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_IDLE_SECONDS", 0.2)
    before = threading.active_count()
    with metrics.serve_metrics(metrics.Metrics(), "127.0.0.1", 0) as port:
        idle = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(20)]
        assert [each.recv(1) for each in idle] == [b""] * 20
        for each in idle:
            each.close()
        asyncio.run(wait_until(lambda: threading.active_count() - before <= 1))
        assert scraped(port)
