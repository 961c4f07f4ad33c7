"""The life cycle and the certificates of a gRPC server, as clients observe them."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import yaml
from certificates import Authority
from tiny_service import call, calling, code_of, health, is_answered, serving, wait_until

from backend_plugin.shell.credentials import build_server_credentials
from backend_plugin.shell.reloaded_value import UnusableCredentials
from backend_plugin.shell.server import FLYTE, LIVENESS, PortUnavailable

CONNECTOR = Path(__file__).parents[2] / "charts/kfpytorch-backend/files/connector.yaml"
UNAVAILABLE, OK = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK


async def test_health_reports_readiness_and_drain():
    async with calling() as (served, channel):
        services = ("", FLYTE, LIVENESS)
        before = [await health(channel, service) for service in services]
        served.ready.set()
        await wait_until(lambda: is_serving(channel))
        after = [await health(channel, service) for service in services]
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


async def is_serving(channel):
    return await health(channel) == "SERVING"


async def test_drain_finishes_running_calls_rejects_new_ones_and_ends_streams():
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
            assert (await code_of(answer))[0] is UNAVAILABLE


async def is_refused(served):
    async with grpc.aio.insecure_channel(served.address) as channel:
        return not await is_answered(served.echo(channel))


async def test_server_replacement_is_transparent_with_the_service_config_of_the_chart():
    service_config = yaml.safe_load(CONNECTOR.read_text())["defaultConnector"]["defaultServiceConfig"]
    options = (("grpc.service_config", service_config), ("grpc.max_reconnect_backoff_ms", 100))

    async def check(port, over):
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
async def test_unusable_host_is_reported(host):
    with pytest.raises(PortUnavailable, match=f"cannot listen on {host}:0: "):
        async with serving(host=host):
            pass


@pytest.mark.parametrize("word", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("drain", "repeats"), [(1.0, False), (600, True)])
async def test_calls_end_at_the_drain_deadline_or_with_a_second_signal(word, drain, repeats):
    async with calling(drain_seconds=drain) as (served, channel):
        running = asyncio.ensure_future(code_of(call(channel, "Wait")))
        await wait_until(lambda: served.tiny.waiting == 1)
        os.kill(os.getpid(), word)
        await asyncio.sleep(0.8)
        assert not running.done()
        if repeats:
            os.kill(os.getpid(), word)
        assert (await running)[0] is UNAVAILABLE


OURS, OTHERS = Authority("ours"), Authority("others")


async def call_server(served, root):
    async with grpc.aio.secure_channel(served.address, grpc.ssl_channel_credentials(root)) as channel:
        return await served.echo(channel)


async def test_client_certificate_without_an_accepted_name_is_rejected(tmp_path):
    key, certificate = tmp_path / "client.key", tmp_path / "client.crt"
    OURS.issue("flytepropeller", certificate, key)
    client = grpc.ssl_channel_credentials(OURS.pem, key.read_bytes(), certificate.read_bytes())

    async def calls(*names):
        credentials = build_server_credentials(OURS.issue_server(tmp_path, mutual=True))
        async with (
            serving(credentials=credentials, client_names=frozenset(names)) as served,
            grpc.aio.secure_channel(served.address, client) as channel,
        ):
            assert await health(channel, "liveness") == "SERVING"
            call = channel.unary_unary("/tiny.Tiny/Say")(b"hello", timeout=60)
            stream = channel.unary_stream("/tiny.Tiny/Count")(b"", timeout=60)
            first = await anext(aiter(stream), b"") if await call.code() is OK else b""
            stream.cancel()
            return await call.code(), first.decode() or str(await stream.code())

    # The issued certificates also have the alternative name server.test.
    for names in ((), ("flytepropeller",), ("a", "server.test")):
        assert await calls(*names) == (OK, "1")
    assert (await calls("other"))[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_renewed_certificates_are_loaded_and_invalid_ones_are_ignored(tmp_path, caplog):
    files = OURS.issue_server(tmp_path)
    async with serving(credentials=build_server_credentials(files)) as served:
        credentials = grpc.ssl_channel_credentials(OURS.pem)
        async with grpc.aio.secure_channel(served.address, credentials) as old:
            assert await served.echo(old) == b"hello"
            files.key.write_text("torn")
            await asyncio.sleep(1.1)
            assert await call_server(served, OURS.pem) == b"hello"
            assert "the previous content stays in use" in caplog.text
            OTHERS.issue("server", files.certificate, files.key)
            await wait_until(lambda: is_answered(call_server(served, OTHERS.pem)))
            assert (await code_of(call_server(served, OURS.pem)))[0] is UNAVAILABLE
            assert await served.echo(old) == b"hello"


def test_unusable_tls_files_are_reported_at_startup(tmp_path):
    good = OURS.issue_server(tmp_path)
    OTHERS.issue("other", tmp_path / "other.crt", tmp_path / "other.key")
    absent, other, words, locked = (tmp_path / one for one in ("absent", "other.key", "words", "locked.key"))
    words.write_text("words")
    encrypted = "ENCRYPTED PRIVATE KEY-----"
    locked.write_text(
        f"-----BEGIN {encrypted}\nMIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAc\n-----END {encrypted}\n"
    )
    for files, message in (
        ({"certificate": absent}, "absent: No such file or directory"),
        ({"key": absent}, "absent: No such file or directory"),
        ({"key": other}, r"are not a certificate and its key \(KEY_VALUES_MISM"),
        ({"certificate": words}, "are not a certificate and its key"),
        ({"key": locked}, "the key without a password"),
        ({"client_ca": words}, "contains no CA certificate"),
        ({"certificate": tmp_path}, "Is a directory"),
    ):
        with pytest.raises(UnusableCredentials, match=message):
            build_server_credentials(replace(good, **files))
