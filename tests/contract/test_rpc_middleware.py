"""Authentication, limits, metrics and traces of the gRPC server."""

import asyncio
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from server_metrics import MetricsPage, read_counts
from tiny_service import call, calling, code_of, health, is_answered, serving, wait_until

from backend_plugin.shell import metrics, tracing
from backend_plugin.shell.credentials import Token

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


def bearer(token):
    return (("authorization", f"Bearer {token}"),)


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        *(bearer(each) for each in ("wrong", "", "secret2", "secre")),
        (("authorization", "secret"),),
        (("authorization", "Basic secret"),),
        (("token", "Bearer secret"),),
        (("authorization-bin", b"Bearer secret"),),
    ],
)
async def test_caller_without_the_token_reaches_only_health(metadata):
    async with calling(token=Token.from_secret("secret")) as (served, channel):
        stream = channel.unary_stream("/tiny.Tiny/Count")(b"", metadata=metadata)
        reflection = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        for answer in (
            served.echo(channel, metadata=metadata),
            call(channel, "Nothing", metadata=metadata),
            stream.read(),
            reflection(metadata=metadata).read(),
        ):
            assert (await code_of(answer))[0] is UNAUTHENTICATED
        assert await health(channel, "liveness") == "SERVING"
        assert read_counts(served.metrics.requests) == {("any", "UNAUTHENTICATED"): 4}


@pytest.mark.parametrize("word", ["Bearer secret", "bearer secret", "BEARER  secret"])
async def test_caller_with_the_token_is_served(word):
    async with calling(token=Token.from_secret("secret")) as (served, channel):
        result = await served.echo(channel, metadata=(("authorization", word),))
    assert result == b"hello"


async def test_replaced_token_file_is_reloaded(tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    async with calling(token=Token.from_file(file)) as (served, channel):
        assert await served.echo(channel, metadata=bearer("first")) == b"hello"
        file.write_text("")  # An empty file is not a token, so the previous token stays valid.
        await asyncio.sleep(1.1)
        assert await served.echo(channel, metadata=bearer("first")) == b"hello"
        file.write_text("second")
        await wait_until(lambda: is_answered(served.echo(channel, metadata=bearer("second"))))
        assert (await code_of(served.echo(channel, metadata=bearer("first"))))[0] is UNAUTHENTICATED


async def test_calls_over_the_limit_are_rejected_and_health_is_served():
    async with calling(limit=2) as (served, channel):
        running = [asyncio.ensure_future(call(channel, "Wait", b"x")) for _ in range(2)]
        await wait_until(lambda: served.tiny.waiting == 2)
        code, details = await code_of(served.echo(channel))
        assert code is EXHAUSTED
        assert details == "2 calls are in progress, which is the limit of this server; retry later"
        assert await health(channel, "liveness") == "SERVING"
        served.tiny.go_on.set()
        assert await asyncio.gather(*running) == [b"x", b"x"]
        assert await served.echo(channel) == b"hello"


async def test_cancelled_call_frees_its_slot():
    async with calling(limit=1) as (served, channel):
        call = channel.unary_unary("/tiny.Tiny/Wait")(b"x")
        await wait_until(lambda: served.tiny.waiting == 1)
        call.cancel()
        await wait_until(lambda: served.server.fronts[0].running == 0)
        assert read_counts(served.metrics.requests) == {("Tiny/Wait", "CANCELLED"): 1}
        result = await served.echo(channel)
    assert result == b"hello"


def counting(channel):
    return channel.unary_stream("/tiny.Tiny/Count")(b"")


async def test_streams_have_a_separate_limit_and_use_no_call_slot():
    async with calling(limit=1, streams=2) as (served, channel):
        (front,) = served.server.fronts
        streams = [counting(channel) for _ in range(2)]
        assert [await each.read() for each in streams] == [b"1", b"1"]
        refused = await code_of(counting(channel).read())
        assert refused == (EXHAUSTED, "2 streams are open, which is the limit of this server; retry later")
        assert await served.echo(channel) == b"hello"
        assert (front.running, front.streaming) == (0, 2)
        streams[0].cancel()
        await wait_until(lambda: front.streaming == 1)
        again = counting(channel)
        assert await again.read() == b"1"
        assert read_counts(served.metrics.requests) == {
            ("Tiny/Count", "RESOURCE_EXHAUSTED"): 1,
            ("Tiny/Count", "CANCELLED"): 1,
            ("Tiny/Say", "OK"): 1,
        }


async def test_health_watches_use_no_slot_of_probes():
    async with calling() as (_, channel):
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
        watching = [watch(b"") for _ in range(64)]
        for each in watching:
            await each.read()
        assert (await code_of(watch(b"").read()))[0] is EXHAUSTED
        assert await health(channel, "liveness") == "SERVING"


UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@pytest.mark.parametrize(
    ("limits", "size", "too_large"),
    # By default, the largest messages of FlytePropeller are accepted.
    [({"receive_bytes": 1000, "send_bytes": 500}, 500, (501, 1001)), ({}, 11 * 2**20, ())],
)
async def test_message_size_is_limited(limits, size, too_large):
    async with (
        serving(**limits) as served,
        grpc.aio.insecure_channel(served.address, options=UNLIMITED) as channel,
    ):
        assert len(await served.echo(channel, b"x" * size)) == size
        for each in too_large:
            assert (await code_of(served.echo(channel, b"x" * each)))[0] is EXHAUSTED


async def test_calls_are_counted_by_result():
    samples = [
        ("grpc_requests_total", {"method": "Tiny/Say", "code": "OK"}),
        ("grpc_requests_total", {"method": "Tiny/Refuse", "code": "NOT_FOUND"}),
        ("grpc_request_duration_seconds_count", {"method": "Tiny/Say"}),
        ("grpc_request_duration_seconds_bucket", {"method": "Tiny/Say", "le": "+Inf"}),
        ("reported_phases_total", {"phase": "RUNNING"}),
        ("cached_objects", {"kind": "Pod"}),
    ]
    async with calling(limit=1) as (served, channel):
        await served.echo(channel)
        await served.echo(channel)
        await code_of(call(channel, "Refuse"))
        served.metrics.phases.add("RUNNING")
        served.metrics.cached.compute = lambda: {("Job",): 3, ("Pod",): 4}
        with metrics.serve_metrics(served.metrics, "127.0.0.1", 0) as port:
            page = MetricsPage(port)
            values = await asyncio.to_thread(lambda: [page.value(name, **labels) for name, labels in samples])
    assert values == [2, 1, 2, 2, 1, 4]


def test_metrics_server_rejects_a_port_in_use():
    with (
        metrics.serve_metrics(metrics.Metrics(), "127.0.0.1", 0) as port,
        pytest.raises(metrics.MetricsPortUnavailable, match="Address already in use"),
        metrics.serve_metrics(metrics.Metrics(), "127.0.0.1", port),
    ):
        pass


def test_metrics_of_all_addresses_are_served_on_ipv6_too():
    hosts = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
    with metrics.serve_metrics(metrics.Metrics(), "0.0.0.0", 0) as port:
        for host in hosts:
            socket.create_connection((host, port), 5).close()


async def test_total_size_of_concurrent_requests_is_limited():
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


async def test_connection_has_a_limited_number_of_streams():
    async with calling(limit=300) as (served, channel):
        calls = [asyncio.ensure_future(call(channel, "Wait")) for _ in range(257)]
        await wait_until(lambda: served.tiny.waiting == 256)
        await asyncio.sleep(0.2)
        assert served.tiny.waiting == 256
        served.tiny.go_on.set()
        await asyncio.gather(*calls)


def test_idle_metrics_client_frees_its_thread(monkeypatch):
    monkeypatch.setattr(metrics, "_IDLE_SECONDS", 0.2)
    before = threading.active_count()
    with metrics.serve_metrics(metrics.Metrics(), "127.0.0.1", 0) as port:
        idle = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(20)]
        assert [each.recv(1) for each in idle] == [b""] * 20
        for each in idle:
            each.close()
        asyncio.run(wait_until(lambda: threading.active_count() - before <= 1))
        assert MetricsPage(port).samples()


@contextmanager
def collector():
    received = []

    def export(request, _):
        received.append(request)
        return b""

    handler = grpc.unary_unary_rpc_method_handler(export, otlp.ExportTraceServiceRequest.FromString)
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        service = "opentelemetry.proto.collector.trace.v1.TraceService"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"http://127.0.0.1:{port}", received
        finally:
            server.stop(None).wait()


async def test_span_is_recorded_for_a_call_and_not_for_a_probe(monkeypatch):
    with collector() as (endpoint, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        with tracing.open_tracing(os.environ) as interceptors:
            async with calling(interceptors=interceptors) as (served, channel):
                assert await served.echo(channel) == b"hello"
                assert (await code_of(call(channel, "Refuse")))[0] is grpc.StatusCode.NOT_FOUND
                assert await health(channel, "liveness") == "SERVING"
    spans = [
        (resource.resource.attributes, span.name)
        for request in received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert [name for _, name in spans] == ["/tiny.Tiny/Say", "/tiny.Tiny/Refuse"]
    assert ("service.name", "kfpytorch") in [(each.key, each.value.string_value) for each in spans[0][0]]
