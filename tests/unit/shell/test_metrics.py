from prometheus_client.exposition import generate_latest

from backend_plugin.shell.metrics import Metrics


def page(metrics: Metrics) -> list[str]:
    return [
        line for line in generate_latest(metrics.registry).decode().splitlines() if not line.startswith("#")
    ]


def test_first_failure_of_a_cause_increases_a_series_that_exists() -> None:
    metrics = Metrics()
    before = page(metrics)
    assert 'kfpytorch_job_failures_total{cause="oom-gpu"} 0.0' in before
    metrics.failures.add("oom-gpu")
    metrics.creates.add("created")
    assert len(page(metrics)) == len(before)
