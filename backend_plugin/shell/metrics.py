"""Prometheus metrics: counters that the event loop updates, and that are converted on each scrape.

A count takes a microsecond, half the time of prometheus_client's own counters with their locks. That package
is only imported if the metrics page is enabled.
"""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from backend_plugin.core.errors import BackendError
from kfpytorch_common.causes import Cause

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

Labels: TypeAlias = tuple[str, ...]

# Seconds: from a response out of memory to FlytePropeller's timeout of 10 s, and beyond.
_CALLS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Seconds: from a job that starts immediately to a gang that waits for a day. Timestamps are whole seconds.
_STARTS: Final = (
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0),
    *(3_600.0, 7_200.0, 14_400.0, 28_800.0, 86_400.0),
)


_CREATES: Final = ("created", "rejected", "unavailable", "resource_exhausted", "failed_precondition")


class MetricsPortUnavailable(BackendError):
    """The metrics page cannot listen at its address."""


@dataclass(slots=True)
class CounterMetric:
    """A counter with labels."""

    name: str
    help: str
    labels: Labels
    values: Labels = ()
    """Values of the only label that start at 0, because the first increment of a new series is not a rate."""
    counts: "Counter[Labels]" = field(init=False)

    def __post_init__(self) -> None:
        self.counts = Counter({(value,): 0 for value in self.values})

    def add(self, *labels: str) -> None:
        """Increment the counter of these labels."""
        self.counts[labels] += 1

    def families(self) -> "Iterator[Metric]":
        """Yield the counter as a Prometheus metric family."""
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(f"kfpytorch_{self.name}", self.help, labels=self.labels)
        for labels, count in list(self.counts.items()):
            family.add_metric(labels, count)
        yield family


@dataclass(slots=True)
class Durations:
    """The observed durations of one set of label values, in buckets."""

    bounds: tuple[float, ...] = _CALLS
    buckets: list[int] = field(init=False)
    seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.buckets = [0] * (len(self.bounds) + 1)

    def add(self, seconds: float) -> None:
        """Record one duration."""
        self.buckets[bisect_left(self.bounds, seconds)] += 1
        self.seconds += seconds


@dataclass(slots=True)
class Histogram:
    """A histogram of durations."""

    name: str
    help: str
    labels: Labels
    bounds: tuple[float, ...] = _CALLS
    of: dict[Labels, Durations] = field(default_factory=dict, init=False)

    def child(self, *labels: str) -> Durations:
        """Return the durations of these label values; a frequent caller should keep the result."""
        return self.of.setdefault(labels, Durations(self.bounds))

    def families(self) -> "Iterator[Metric]":
        """Yield the histogram as a Prometheus metric family."""
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(f"kfpytorch_{self.name}", self.help, labels=self.labels)
        for labels, durations in list(self.of.items()):
            upper, count = [], 0
            for bound, inside in zip((*map(str, self.bounds), "+Inf"), list(durations.buckets), strict=True):
                count += inside
                upper.append((bound, count))
            family.add_metric(labels, upper, durations.seconds)
        yield family


@dataclass(slots=True)
class Gauge:
    """A value that is computed during a scrape, in the scraping thread."""

    name: str
    help: str
    labels: Labels
    ask: Callable[[], Mapping[Labels, float]] | None = None

    def families(self) -> "Iterator[Metric]":
        """Yield the gauge as a Prometheus metric family."""
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(f"kfpytorch_{self.name}", self.help, labels=self.labels)
        for labels, value in (self.ask() if self.ask else {}).items():
            family.add_metric(labels, value)
        yield family


@dataclass(slots=True, eq=False)
class Metrics:
    """The metrics of a server; to be updated on the event loop only."""

    build: Gauge = field(
        default_factory=lambda: Gauge(
            "build_info", "The version of the server, as labels of the value 1.", ("version", "python")
        )
    )
    requests: CounterMetric = field(
        default_factory=lambda: CounterMetric(
            "grpc_requests", "Completed calls, by gRPC code.", ("method", "code")
        )
    )
    request_duration: Histogram = field(
        default_factory=lambda: Histogram(
            "grpc_request_duration_seconds", "Duration of calls that are not streams.", ("method",)
        )
    )
    running: Gauge = field(
        default_factory=lambda: Gauge("grpc_requests_in_flight", "Calls in progress.", ("api",))
    )
    streams: Gauge = field(default_factory=lambda: Gauge("grpc_streams_in_flight", "Open streams.", ("api",)))
    phases: CounterMetric = field(
        default_factory=lambda: CounterMetric("reported_phases", "Phases that GetTask returned.", ("phase",))
    )
    jobs: Gauge = field(
        default_factory=lambda: Gauge(
            "jobs", "Existing jobs, by their last observed phase.", ("phase", "task_namespace", "queue")
        )
    )
    oldest_waiting: Gauge = field(
        default_factory=lambda: Gauge(
            "oldest_waiting_job_seconds", "Age of the oldest job that has never been placed.", ()
        )
    )
    job_wait: Histogram = field(
        default_factory=lambda: Histogram(
            "job_wait_duration_seconds", "Time from the creation of a job until it was placed.", (), _STARTS
        )
    )
    job_start: Histogram = field(
        default_factory=lambda: Histogram(
            "job_start_duration_seconds", "Time from the creation of a job until it first ran.", (), _STARTS
        )
    )
    failures: CounterMetric = field(
        default_factory=lambda: CounterMetric(
            "job_failures", "Failed jobs, by cause.", ("cause",), tuple(each.value for each in Cause)
        )
    )
    creates: CounterMetric = field(
        default_factory=lambda: CounterMetric(
            "create_task", "CreateTask calls, by result.", ("result",), _CREATES
        )
    )
    cluster_errors: CounterMetric = field(
        default_factory=lambda: CounterMetric(
            "cluster_errors",
            "Failed requests to the cluster and failures of watches.",
            ("operation", "error"),
        )
    )
    orphans: CounterMetric = field(
        default_factory=lambda: CounterMetric("orphans", "Jobs without an owner, by result.", ("result",))
    )
    store_errors: CounterMetric = field(
        default_factory=lambda: CounterMetric(
            "output_store_errors", "Failed reads of outputs and error files.", ("scheme", "error")
        )
    )
    watch_lag: Histogram = field(
        default_factory=lambda: Histogram(
            "watch_lag_seconds", "Time from a change in the cluster until it was received.", ("kind",)
        )
    )
    watch_age: Gauge = field(
        default_factory=lambda: Gauge(
            "watch_age_seconds", "Time since the API server last sent data for a kind.", ("kind",)
        )
    )
    watches: Gauge = field(
        default_factory=lambda: Gauge(
            "watches", "Watches in a Kubernetes cluster, by state.", ("kind", "state")
        )
    )
    cached: Gauge = field(default_factory=lambda: Gauge("cached_objects", "Objects in the cache.", ("kind",)))
    background_operations: Gauge = field(
        default_factory=lambda: Gauge(
            "background_operations", "Pending background operations.", ("operation",)
        )
    )

    def collect(self) -> "Iterator[Metric]":
        """Yield all metric families; prometheus_client's registry calls this."""
        for each in self.__slots__:
            yield from getattr(self, each).families()


@contextmanager
def serve_metrics(metrics: Metrics, host: str, port: int) -> Iterator[int]:
    """Serve the metrics, with those of the process, while the context is open; yields the port.

    Raises:
        MetricsPortUnavailable: If the address cannot be bound.
    """
    from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

    from backend_plugin.shell.metrics_page import MetricsServer

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(cast("Collector", metrics))
    try:
        server = MetricsServer((host, port), make_wsgi_app(registry))
    except OSError as error:
        raise MetricsPortUnavailable(
            f"the metrics cannot be shown at {host}:{port}: {error.strerror}"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
