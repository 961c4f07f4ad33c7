"""The life cycle of a server, as clients observe it."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from tiny_service import TinyServed, call, calling, code_of, health, is_answered, serving, wait_until

from backend_plugin.shell.server import FLYTE, LIVENESS, PortUnavailable

CONNECTOR = Path(__file__).parents[2] / "charts/kfpytorch-backend/files/connector.yaml"
PROGRAM = Path(__file__).parent / "tiny_service.py"


async def test_health_reports_readiness_and_drain() -> None:
    async with calling() as (served, channel):

        async def all_of_it() -> list[str]:
            return [await health(channel, service) for service in ("", FLYTE, LIVENESS)]

        before = await all_of_it()
        served.ready.set()
        await wait_until(lambda: is_serving(channel))
        after = await all_of_it()
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        watched = [await watch.read()]
        waiting = asyncio.ensure_future(call(channel, "Wait"))
        await wait_until(lambda: served.tiny.waiting == 1)
        served.server.stop()
        watched.append(await watch.read())
        served.tiny.go_on.set()
        await waiting
    assert (before, after) == (["NOT_SERVING", "NOT_SERVING", "SERVING"], ["SERVING"] * 3)
    assert watched == [b"\x08\x01", b"\x08\x02"]


async def is_serving(channel: grpc.aio.Channel) -> bool:
    return await health(channel) == "SERVING"


async def test_drain_finishes_running_calls_rejects_new_ones_and_ends_streams() -> None:
    async with calling(drain_seconds=60) as (served, channel):
        stream = channel.unary_stream("/tiny.Tiny/Count")(b"")
        assert await stream.read() == b"1"
        running = asyncio.ensure_future(call(channel, "Wait", b"done"))
        await wait_until(lambda: served.tiny.waiting == 1)
        served.server.stop()
        await wait_until(lambda: is_refused(served))
        served.tiny.go_on.set()
        assert await running == b"done"
        for answer in (stream.read(), served.echo(channel)):
            assert (await code_of(answer))[0] is grpc.StatusCode.UNAVAILABLE


async def is_refused(served: TinyServed) -> bool:
    async with grpc.aio.insecure_channel(served.address) as channel:
        return not await is_answered(served.echo(channel))


async def test_server_replacement_is_transparent_with_the_service_config_of_the_chart() -> None:
    service_config = yaml.safe_load(CONNECTOR.read_text())["defaultConnector"]["defaultServiceConfig"]
    options = (("grpc.service_config", service_config), ("grpc.max_reconnect_backoff_ms", 100))

    async def check(port: int, over: asyncio.Event) -> int:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            count = 0
            while not over.is_set():
                await call(channel, "Say", b"word")
                count += 1
            return count

    over = asyncio.Event()
    async with serving() as first:
        port = int(first.address.rpartition(":")[2])
        requests = asyncio.gather(*(check(port, over) for _ in range(6)))
        await asyncio.sleep(0.1)
    # In each replacement, about one of the six callers has a call in progress.
    for _ in range(8):
        async with serving(port=port):
            await asyncio.sleep(0.3)
    async with serving(port=port):
        over.set()
        assert all(await requests)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
async def test_unusable_host_is_reported(host: str) -> None:
    with pytest.raises(PortUnavailable, match=f"cannot listen on {host}:0: "):
        async with serving(host=host):
            pass


@contextmanager
def program(drain: float) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    command = [sys.executable, str(PROGRAM), str(drain)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, f"127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


@pytest.mark.parametrize("word", [signal.SIGTERM, signal.SIGINT])
def test_signal_drains_running_calls_before_exit(word: signal.Signals) -> None:
    with program(drain=1.0) as (process, address), grpc.insecure_channel(address) as channel:
        running = waiting(process, channel)
        sent = time.monotonic()
        process.send_signal(word)
        assert process.wait(timeout=60) == 0
        # The call does not end by itself, so the drain deadline cancels it, not the signal.
        assert time.monotonic() - sent > 0.9
        assert running.code() is grpc.StatusCode.UNAVAILABLE
        assert process.stdout is not None
        assert process.stdout.read() == "ended\n"


def waiting(process: "subprocess.Popen[str]", channel: grpc.Channel) -> Any:
    """Return a call that the server has received and does not answer."""
    running = channel.unary_unary("/tiny.Tiny/Wait").future(b"x", timeout=90)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    return running


def test_second_signal_ends_the_server_immediately() -> None:
    with program(drain=600) as (process, address), grpc.insecure_channel(address) as channel:
        running = waiting(process, channel)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        assert running.code() is grpc.StatusCode.UNAVAILABLE
