"""Optional OpenTelemetry tracing: one span for each gRPC call, exported to an OTLP collector.

Tracing is configured with OpenTelemetry's own environment variables (OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER and others). Without these variables, no package of OpenTelemetry is
imported.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from backend_plugin.core.errors import BackendError

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_INSTALL: Final = 'pip install "flytekitplugins-kfpytorch[backend,otel]"'


class TracingUnavailable(BackendError):
    """Tracing is requested, but it cannot be set up."""


def is_requested(environ: Mapping[str, str]) -> bool:
    """True if the environment enables the export of traces."""
    if (
        environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or environ.get("OTEL_TRACES_EXPORTER") == "none"
    ):
        return False
    return any(environ.get(name) for name in _ENDPOINTS) or environ.get("OTEL_TRACES_EXPORTER") == "otlp"


@contextmanager
def open_tracing(environ: Mapping[str, str]) -> Iterator[Sequence[Any]]:
    """Yield the gRPC interceptors that trace a server: an empty tuple if tracing is not requested.

    Raises:
        TracingUnavailable: If a package is missing, or the requested OTLP protocol is not supported.
    """
    if not is_requested(environ):
        yield ()
        return
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), "grpc")
    if protocol != "grpc":
        raise TracingUnavailable(f"traces are sent by grpc only, not by {protocol}; unset {_PROTOCOLS[1]}")
    try:
        interceptor, provider = _build_tracing(environ)
    except ModuleNotFoundError as missing:
        raise TracingUnavailable(
            f"traces are enabled, but {missing.name} is not installed; run: {_INSTALL}"
        ) from missing
    try:
        yield (interceptor,)
    finally:
        provider.shutdown()


def _build_tracing(environ: Mapping[str, str]) -> tuple[Any, Any]:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.grpc import aio_server_interceptor, filters
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = {} if environ.get("OTEL_SERVICE_NAME") else {"service.name": "kfpytorch"}
    provider = TracerProvider(resource=Resource.create(name))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    without_health = filters.negate(filters.health_check())
    interceptor = aio_server_interceptor(provider, filter_=without_health)  # type: ignore[no-untyped-call]
    return interceptor, provider
