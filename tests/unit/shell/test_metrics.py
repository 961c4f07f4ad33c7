from prometheus_client.exposition import generate_latest

from backend_plugin.shell.metrics import Metrics


def page(metrics: Metrics) -> list[str]:
    return [
        line for line in generate_latest(metrics.registry).decode().splitlines() if not line.startswith("#")
    ]


def test_counted_values_are_exported() -> None:
    metrics = Metrics()
    metrics.orphans.add("adopted")
    metrics.orphans.add("adopted")
    metrics.cluster_errors.add("create_job", "ClusterUnavailable")
    metrics.background_operations.compute = lambda: {("delete_job",): 4}
    assert [line for line in page(metrics) if not line.endswith(" 0.0")] == [
        'kfpytorch_cluster_errors_total{error="ClusterUnavailable",operation="create_job"} 1.0',
        'kfpytorch_orphans_total{result="adopted"} 2.0',
        'kfpytorch_background_operations{operation="delete_job"} 4.0',
    ]


def test_first_failure_of_a_cause_increases_a_series_that_exists() -> None:
    metrics = Metrics()
    before = page(metrics)
    assert 'kfpytorch_job_failures_total{cause="oom-gpu"} 0.0' in before
    metrics.failures.add("oom-gpu")
    metrics.creates.add("created")
    assert len(page(metrics)) == len(before)
