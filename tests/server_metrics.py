"""The metrics of a server, and the values of a counter."""

from prometheus_client.metrics import MetricWrapperBase

from backend_plugin.shell.metrics import CounterMetric, Metrics


def list_metrics() -> list[MetricWrapperBase]:
    return [each for each in vars(Metrics()).values() if isinstance(each, MetricWrapperBase)]


def get_exported_name(metric: MetricWrapperBase) -> str:
    name: str = metric._name
    return f"{name}_total" if isinstance(metric, CounterMetric) else name


def read_counts(counter: CounterMetric) -> dict[tuple[str, ...], float]:
    """Return the counts that are not zero, by the values of their labels."""
    samples = [sample for family in counter.collect() for sample in family.samples]
    return {tuple(each.labels.values()): each.value for each in samples if each.value}
