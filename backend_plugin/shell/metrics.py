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

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

Labels: TypeAlias = tuple[str, ...]

# Seconds: from a response out of memory to FlytePropeller's timeout of 10 s, and beyond.
_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class CannotShow(BackendError):
    """The metrics page cannot listen at its address."""


@dataclass(slots=True)
class Tally:
    """A counter with labels."""

    name: str
    help: str
    labels: Labels
    counts: "Counter[Labels]" = field(default_factory=Counter, init=False)

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
    """The observed durations of one label, in buckets."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS) + 1), init=False)
    seconds: float = field(default=0.0, init=False)

    def add(self, seconds: float) -> None:
        """Record one duration."""
        self.buckets[bisect_left(_BOUNDS, seconds)] += 1
        self.seconds += seconds


@dataclass(slots=True)
class Histogram:
    """A histogram of durations with one label."""

    name: str
    help: str
    label: str
    of: dict[str, Durations] = field(default_factory=dict, init=False)

    def child(self, label: str) -> Durations:
        """Return the durations of one label value; a frequent caller should keep the result."""
        return self.of.setdefault(label, Durations())

    def families(self) -> "Iterator[Metric]":
        """Yield the histogram as a Prometheus metric family."""
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(f"kfpytorch_{self.name}", self.help, labels=(self.label,))
        for label, durations in list(self.of.items()):
            upper, count = [], 0
            for bound, inside in zip((*map(str, _BOUNDS), "+Inf"), list(durations.buckets), strict=True):
                count += inside
                upper.append((bound, count))
            family.add_metric((label,), upper, durations.seconds)
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

    requests: Tally = field(
        default_factory=lambda: Tally("requests", "Calls that ended.", ("method", "code"))
    )
    request_seconds: Histogram = field(
        default_factory=lambda: Histogram("request_seconds", "How long calls took.", "method")
    )
    running: Gauge = field(
        default_factory=lambda: Gauge("requests_running", "Calls that are being answered.", ("services",))
    )
    streams: Gauge = field(
        default_factory=lambda: Gauge("streams_open", "Streams that are open.", ("services",))
    )
    phases: Tally = field(default_factory=lambda: Tally("phases", "Phases that were answered.", ("phase",)))
    causes: Tally = field(
        default_factory=lambda: Tally("causes", "Causes of the failures that were seen.", ("cause",))
    )
    creates: Tally = field(
        default_factory=lambda: Tally(
            "creates", "Tasks that were to be created, by what came of it.", ("result",)
        )
    )
    cluster_errors: Tally = field(
        default_factory=lambda: Tally(
            "cluster_errors", "What the cluster refused or did not answer.", ("operation", "error")
        )
    )
    orphans: Tally = field(
        default_factory=lambda: Tally(
            "orphans", "Jobs without an owner, by what was found of their execution, or done.", ("result",)
        )
    )
    store_errors: Tally = field(
        default_factory=lambda: Tally(
            "store_errors", "Looks for outputs and error files that failed.", ("scheme", "error")
        )
    )
    watch_lag: Histogram = field(
        default_factory=lambda: Histogram(
            "watch_lag_seconds", "From a change in the cluster until it was seen.", "kind"
        )
    )
    watches: Gauge = field(
        default_factory=lambda: Gauge(
            "watches", "What is followed in a Kubernetes, by how it stands.", ("kind", "state")
        )
    )
    cached: Gauge = field(
        default_factory=lambda: Gauge("cached_objects", "Objects that are remembered.", ("kind",))
    )
    orders_pending: Gauge = field(
        default_factory=lambda: Gauge(
            "orders_pending", "What is under way behind the calls, by what is asked.", ("order",)
        )
    )

    def collect(self) -> "Iterator[Metric]":
        """Yield all metric families; prometheus_client's registry calls this."""
        for each in self.__slots__:
            yield from getattr(self, each).families()


@contextmanager
def shown(metrics: Metrics, host: str, port: int) -> Iterator[int]:
    """Serve the metrics, with those of the process, while the context is open; yields the port.

    Raises:
        CannotShow: If the address cannot be bound.
    """
    from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

    from backend_plugin.shell.metrics_page import MetricsServer

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(cast("Collector", metrics))
    try:
        server = MetricsServer((host, port), make_wsgi_app(registry))
    except OSError as error:
        raise CannotShow(f"the metrics cannot be shown at {host}:{port}: {error.strerror}") from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
