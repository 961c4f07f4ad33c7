"""The metrics of a server, the values of a counter, and the metrics page as Prometheus reads it."""

import urllib.request
from dataclasses import dataclass

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from backend_plugin.shell.metrics import CounterMetric, Metrics

Sample = tuple[str, tuple[tuple[str, str], ...]]  # The name of a time series, and its labels in order.


def list_metrics():
    return [each for each in vars(Metrics()).values() if isinstance(each, MetricWrapperBase)]


def get_exported_name(metric):
    name = metric._name
    return f"{name}_total" if isinstance(metric, CounterMetric) else name


def read_counts(counter):
    """Return the counts that are not zero, by the values of their labels."""
    samples = [sample for family in counter.collect() for sample in family.samples]
    return {tuple(each.labels.values()): each.value for each in samples if each.value}


@dataclass
class MetricsPage:
    port: int

    def text(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as page:
            return str(page.read().decode())

    def samples(self):
        return {
            (each.name, tuple(sorted(each.labels.items()))): each.value
            for family in text_string_to_metric_families(self.text())
            for each in family.samples
        }

    def value(self, name, **labels):
        """Return the value of a time series; 0 if it does not exist."""
        return self.samples().get((f"kfpytorch_{name}", tuple(sorted(labels.items()))), 0.0)
