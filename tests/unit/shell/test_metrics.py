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


def test_duration_counts_in_each_bucket_that_contains_it() -> None:
    metrics = Metrics()
    for seconds in (0.0004, 0.0005, 0.3, 100.0):
        metrics.watch_lag.labels("Pod").observe(seconds)
    buckets = {
        line.split('le="')[1].split('"')[0]: line.split()[-1]
        for line in page(metrics)
        if line.startswith("kfpytorch_watch_lag_seconds_bucket")
    }
    assert list(buckets) == [
        *("0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.1", "0.5", "1.0", "2.5", "5.0"),
        *("10.0", "30.0", "+Inf"),
    ]
    assert [buckets[bound] for bound in ("0.0005", "0.1", "0.5", "30.0", "+Inf")] == [
        *("2.0", "2.0", "3.0", "3.0", "4.0"),
    ]
    assert 'kfpytorch_watch_lag_seconds_sum{kind="Pod"} 100.3009' in page(metrics)


def test_metric_without_labels_has_one_series() -> None:
    metrics = Metrics()
    metrics.job_wait.observe(90.0)
    metrics.oldest_waiting.compute = lambda: {(): 12.5}
    lines = page(metrics)
    assert "kfpytorch_oldest_waiting_job_seconds 12.5" in lines
    assert 'kfpytorch_job_wait_duration_seconds_bucket{le="60.0"} 0.0' in lines
    assert 'kfpytorch_job_wait_duration_seconds_bucket{le="120.0"} 1.0' in lines
    assert "kfpytorch_job_wait_duration_seconds_sum 90.0" in lines


def test_each_metric_is_documented() -> None:
    for family in Metrics().registry.collect():
        assert family.documentation.endswith(".")
