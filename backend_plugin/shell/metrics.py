"""The Prometheus metrics of a server, and the page that serves them."""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property, partial
from typing import Final, TypeAlias, TypeVar

import prometheus_client
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.metrics import MetricWrapperBase

from backend_plugin.core.errors import BackendError
from kfpytorch_common.causes import Cause

Labels: TypeAlias = tuple[str, ...]
M = TypeVar("M", bound=MetricWrapperBase)

# Buckets in seconds: from calls without an API request, to calls beyond FlytePropeller's timeout of 10 s.
_CALLS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Buckets in seconds: from an immediate start to a gang that waits for a day. Timestamps are whole seconds.
_STARTS: Final = (
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0),
    *(3_600.0, 7_200.0, 14_400.0, 28_800.0, 86_400.0),
)
_CREATES: Final = ("created", "rejected", "unavailable", "resource_exhausted", "failed_precondition")
_IDLE_SECONDS: Final = 5.0

disable_created_metrics()  # type: ignore[no-untyped-call]


class MetricsPortUnavailable(BackendError):
    """The server of the metrics page cannot listen at its address."""


class CounterMetric(prometheus_client.Counter):
    """A counter with labels."""

    def add(self, *labels: str) -> None:
        """Increment the counter with these label values by 1."""
        self._find_series(*labels).inc()

    @cached_property
    def _find_series(self) -> Callable[..., "CounterMetric"]:
        return cache(self.labels)  # `labels` takes three times as long as `inc`.


class ComputedGauge(prometheus_client.Gauge):
    """A gauge whose series are computed during a scrape, in the scraping thread."""

    compute: Callable[[], Mapping[Labels, float]] | None = None

    def collect(self) -> Iterable[Metric]:
        """Yield the gauge as a metric family."""
        family = GaugeMetricFamily(self._name, self._documentation, labels=self._labelnames)
        for labels, value in (self.compute() if self.compute else {}).items():
            family.add_metric(labels, value)
        yield family


class Metrics:
    """The metrics of a server."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()

        def make(kind: type[M], name: str, text: str, *labels: str) -> M:
            return kind(f"kfpytorch_{name}", text, labels, registry=registry)

        counter, gauge = partial(make, CounterMetric), partial(make, ComputedGauge)
        calls, starts = (
            partial(prometheus_client.Histogram, namespace="kfpytorch", registry=registry, buckets=buckets)
            for buckets in (_CALLS, _STARTS)
        )
        self.build = gauge(
            "build_info", "The version of the server, as labels of the value 1.", "version", "python"
        )
        self.requests = counter("grpc_requests", "Completed calls, by gRPC code.", "method", "code")
        self.request_duration = calls(
            "grpc_request_duration_seconds", "Duration of calls that are not streams.", ["method"]
        )
        self.running = gauge("grpc_requests_in_flight", "Calls in progress.", "api")
        self.streams = gauge("grpc_streams_in_flight", "Open streams.", "api")
        self.phases = counter("reported_phases", "Phases that GetTask returned.", "phase")
        self.jobs = gauge(
            "jobs", "Existing jobs, by their last observed phase.", "phase", "task_namespace", "queue"
        )
        self.oldest_waiting = gauge(
            "oldest_waiting_job_seconds", "Age of the oldest job that has never been placed."
        )
        self.job_wait = starts(
            "job_wait_duration_seconds", "Time from the creation of a job until it was placed."
        )
        self.job_start = starts(
            "job_start_duration_seconds", "Time from the creation of a job until it first ran."
        )
        self.failures = counter("job_failures", "Failed jobs, by cause.", "cause")
        self.creates = counter("create_task", "CreateTask calls, by result.", "result")
        self.cluster_errors = counter(
            "cluster_errors", "Failed requests to the cluster and failures of watches.", "operation", "error"
        )
        self.orphans = counter("orphans", "Jobs without an owner, by result.", "result")
        self.store_errors = counter(
            "output_store_errors", "Failed reads of outputs and error files.", "scheme", "error"
        )
        self.watch_lag = calls(
            "watch_lag_seconds", "Time from a change in the cluster until it was received.", ["kind"]
        )
        self.watch_age = gauge(
            "watch_age_seconds", "Time since the API server last sent data for a kind.", "kind"
        )
        self.watches = gauge("watches", "Watches in a Kubernetes cluster, by state.", "kind", "state")
        self.cached = gauge("cached_objects", "Objects in the cache.", "kind")
        self.background_operations = gauge(
            "background_operations", "Pending background operations.", "operation"
        )
        # These series start at 0, because Prometheus ignores the first value of a new series in rates.
        for cause in Cause:
            self.failures.labels(cause.value)
        for result in _CREATES:
            self.creates.labels(result)


@contextmanager
def serve_metrics(metrics: Metrics, host: str, port: int) -> Iterator[int]:
    """Serve the metrics of the server and of its process during the `with` block; yield the port.

    Raises:
        MetricsPortUnavailable: If the address cannot be bound.
    """
    ProcessCollector(registry=metrics.registry)
    # Like the port of gRPC, listen also on IPv6: pods of some clusters have no IPv4 address.
    address = "::" if host == "0.0.0.0" and socket.has_dualstack_ipv6() else host  # noqa: S104
    try:
        server, thread = start_http_server(port, address, metrics.registry)
    except OSError as error:
        raise MetricsPortUnavailable(
            f"the metrics cannot be shown at {host}:{port}: {error.strerror}"
        ) from error
    # Each connection has a thread. Close idle connections, without a traceback in the log.
    server.RequestHandlerClass.timeout = _IDLE_SECONDS  # type: ignore[attr-defined]
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
