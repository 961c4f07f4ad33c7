from datetime import datetime, timedelta, timezone

import msgspec
from prometheus_client.exposition import generate_latest

from backend_plugin.core.judging.verdict import Phase
from backend_plugin.core.observed import Condition, Job, PodGroup
from backend_plugin.core.scheduling import gang_annotation
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.job_metrics import MAX_QUEUES, compute_oldest_wait, count_jobs, measure_start
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.task_responses import CachedResponse

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def add(
    cache: Cache, name: str, phase: Phase | None = None, *, queue: str = "", age: float = 0.0
) -> CachedJob:
    """Add a job; the namespace is the part of the name before the slash."""
    namespace, _, name = name.partition("/")
    gang = {gang_annotation.ANNOTATION: msgspec.json.encode({"queue": queue}).decode()} if queue else {}
    created = NOW - timedelta(seconds=age)
    cache.put_record(
        namespace, Job(name=name, namespace=namespace, uid=name, created=created, annotations=gang)
    )
    entry = cache.get((namespace, name))
    assert entry is not None
    entry.logged_phase = phase
    return entry


def test_jobs_are_counted_by_phase_namespace_and_queue() -> None:
    cache = Cache(lambda: NOW)
    add(cache, "a/1", Phase.RUNNING, queue="team")
    add(cache, "a/2", Phase.RUNNING, queue="team")
    add(cache, "a/3", Phase.WAITING_FOR_RESOURCES, queue="team")
    add(cache, "b/4")
    cache.mark_deleted(add(cache, "b/5", Phase.RUNNING))
    assert count_jobs(cache) == {
        ("RUNNING", "a", "team"): 2,
        ("WAITING_FOR_RESOURCES", "a", "team"): 1,
        ("QUEUED", "b", ""): 1,
    }


def test_phase_before_the_first_verdict_is_the_one_that_flyte_received() -> None:
    cache = Cache(lambda: NOW)
    entry = add(cache, "a/1")
    started = msgspec.structs.replace(entry.job, conditions=(Condition(type="Running", true=True),))
    cache.put_record("a", started)
    # Only a job without a condition is new.
    assert count_jobs(cache) == {("UNDEFINED", "a", ""): 1}
    entry.answer = CachedResponse(phase=Phase.RUNNING, message=b"", version=1, until=NOW)
    assert count_jobs(cache) == {("RUNNING", "a", ""): 1}


def test_queue_of_the_pod_group_takes_precedence() -> None:
    cache = Cache(lambda: NOW)
    foreign = PodGroup(kind="PodGroup", name="1", queue="of-another", foreign=True)
    own = PodGroup(kind="Workload", name="1", queue="actual")
    add(cache, "a/1", Phase.QUEUED, queue="asked").pod_groups = (foreign, own)
    assert count_jobs(cache) == {("QUEUED", "a", "actual"): 1}


def test_invalid_queue_name_has_no_own_label() -> None:
    cache = Cache(lambda: NOW)
    for number in range(3):
        add(cache, f"a/{number}", Phase.QUEUED, queue=f'"}} {number}')
    assert count_jobs(cache) == {("QUEUED", "a", "_other"): 3}


def test_only_the_largest_queues_have_their_own_labels() -> None:
    cache = Cache(lambda: NOW)
    for number in range(2_000):
        add(cache, f"n{number // 2}/{number}", Phase.RUNNING)
    for number in range(3):
        add(cache, f"large/{number}", Phase.QUEUED, queue="team")
    counts = count_jobs(cache)
    assert counts["QUEUED", "large", "team"] == 3
    assert counts["RUNNING", "_other", "_other"] == 2_000 - 2 * (MAX_QUEUES - 1)
    assert len(counts) == MAX_QUEUES + 1
    assert sum(counts.values()) == 2_003


def test_oldest_waiting_job_was_never_placed() -> None:
    cache = Cache(lambda: NOW)
    assert compute_oldest_wait(cache, NOW) == 0
    add(cache, "a/1", Phase.RUNNING, age=900)
    add(cache, "a/2", Phase.WAITING_FOR_RESOURCES, age=300)
    add(cache, "a/3", age=20)
    assert compute_oldest_wait(cache, NOW) == 300


def measured(metrics: Metrics) -> tuple[float, float]:
    """Return the sums of the measured waits and starts."""
    return metrics.job_wait._sum.get(), metrics.job_start._sum.get()


def test_start_of_a_job_is_measured_once_by_the_server_that_created_it() -> None:
    cache, metrics = Cache(lambda: NOW), Metrics()
    entry = add(cache, "a/1", age=100)
    measure_start(metrics, entry, Phase.RUNNING, NOW)
    cache.merge_fetched_job("a", entry.job, None, is_new=True)
    for phase in (Phase.QUEUED, Phase.WAITING_FOR_RESOURCES):
        measure_start(metrics, entry, phase, NOW)
    assert measured(metrics) == (0, 0)
    measure_start(metrics, entry, Phase.INITIALIZING, NOW)
    assert measured(metrics) == (100, 0)
    for phase in (Phase.RUNNING, Phase.RUNNING, Phase.SUCCEEDED):
        measure_start(metrics, entry, phase, NOW + timedelta(seconds=20))
    failed = add(cache, "a/2", age=100)
    cache.merge_fetched_job("a", failed.job, None, is_new=True)
    measure_start(metrics, failed, Phase.FAILED, NOW)
    assert measured(metrics) == (100, 120)


def page(metrics: Metrics) -> list[str]:
    lines = generate_latest(metrics.registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_first_failure_of_a_cause_increases_a_series_that_exists() -> None:
    metrics = Metrics()
    before = page(metrics)
    assert 'kfpytorch_job_failures_total{cause="oom-gpu"} 0.0' in before
    metrics.failures.add("oom-gpu")
    metrics.creates.add("created")
    assert len(page(metrics)) == len(before)
