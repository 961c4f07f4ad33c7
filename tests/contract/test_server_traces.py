"""The spans that an OpenTelemetry collector receives."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from tiny_service import call, calling, code_of, health

from backend_plugin.shell import tracing


@contextmanager
def collector() -> Iterator[tuple[str, list[otlp.ExportTraceServiceRequest]]]:
    received: list[otlp.ExportTraceServiceRequest] = []

    def export(request: otlp.ExportTraceServiceRequest, _: grpc.ServicerContext) -> bytes:
        received.append(request)
        return b""

    handler = grpc.unary_unary_rpc_method_handler(export, otlp.ExportTraceServiceRequest.FromString)
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "opentelemetry.proto.collector.trace.v1.TraceService", {"Export": handler}
                ),
            )
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"http://127.0.0.1:{port}", received
        finally:
            server.stop(None).wait()


def test_span_is_recorded_for_a_call_and_not_for_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        with tracing.open_tracing(os.environ) as interceptors:
            async with calling(interceptors=interceptors) as (served, channel):
                assert await served.echo(channel) == b"hello"
                assert (await code_of(call(channel, "Refuse")))[0] is grpc.StatusCode.NOT_FOUND
                assert await health(channel, "liveness") == "SERVING"

    with collector() as (endpoint, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        asyncio.run(check())
    spans = [
        (resource.resource.attributes, span.name)
        for request in received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert [name for _, name in spans] == ["/tiny.Tiny/Say", "/tiny.Tiny/Refuse"]
    assert ("service.name", "kfpytorch") in [(each.key, each.value.string_value) for each in spans[0][0]]
