from datetime import datetime, timedelta, timezone

import msgspec
from prometheus_client.exposition import generate_latest

from backend_plugin.core.judging.verdict import Phase
from backend_plugin.core.observed import Condition, Job, PodGroup
from backend_plugin.core.scheduling import gang_annotation
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.job_metrics import MAX_QUEUES, compute_oldest_wait, count_jobs, measure_start
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.task_responses import CachedResponse
from backend_plugin.shell.watch_status import WatchState, WatchStatus

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def add(cache, name, phase=None, *, queue="", age=0):
    """Add a job; the namespace is the part of the name before the slash."""
    namespace, _, name = name.partition("/")
    gang = {gang_annotation.ANNOTATION: msgspec.json.encode({"queue": queue}).decode()} if queue else {}
    created = NOW - timedelta(seconds=age)
    job = Job(name=name, namespace=namespace, uid=name, created=created, annotations=gang)
    cache.put_record(namespace, job)
    entry = cache.get((namespace, name))
    assert entry is not None
    entry.logged_phase = phase
    return entry


def test_jobs_are_counted_by_phase_namespace_and_queue():
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


def test_phase_before_the_first_verdict_is_the_one_that_flyte_received():
    cache = Cache(lambda: NOW)
    entry = add(cache, "a/1")
    started = msgspec.structs.replace(entry.job, conditions=(Condition(type="Running", true=True),))
    cache.put_record("a", started)
    # Only a job without a condition is new.
    assert count_jobs(cache) == {("UNDEFINED", "a", ""): 1}
    entry.answer = CachedResponse(phase=Phase.RUNNING, message=b"", version=1, until=NOW)
    assert count_jobs(cache) == {("RUNNING", "a", ""): 1}


def test_queue_of_the_pod_group_takes_precedence_and_an_invalid_name_has_no_own_label():
    cache = Cache(lambda: NOW)
    foreign = PodGroup(kind="PodGroup", name="1", queue="of-another", foreign=True)
    own = PodGroup(kind="Workload", name="1", queue="actual")
    add(cache, "a/1", Phase.QUEUED, queue="asked").pod_groups = (foreign, own)
    assert count_jobs(cache) == {("QUEUED", "a", "actual"): 1}
    for number in range(3):
        add(cache, f"b/{number}", Phase.QUEUED, queue=f'"}} {number}')
    assert count_jobs(cache) == {("QUEUED", "a", "actual"): 1, ("QUEUED", "b", "_other"): 3}


def test_only_the_largest_queues_have_their_own_labels():
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


def test_oldest_waiting_job_was_never_placed():
    cache = Cache(lambda: NOW)
    assert compute_oldest_wait(cache, NOW) == 0
    add(cache, "a/1", Phase.RUNNING, age=900)
    add(cache, "a/2", Phase.WAITING_FOR_RESOURCES, age=300)
    add(cache, "a/3", age=20)
    assert compute_oldest_wait(cache, NOW) == 300


def measured(metrics):
    return metrics.job_wait._sum.get(), metrics.job_start._sum.get()


def test_start_of_a_job_is_measured_once_by_the_server_that_created_it():
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


def page(metrics):
    lines = generate_latest(metrics.registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_first_failure_of_a_cause_increases_a_series_that_exists():
    metrics = Metrics()
    before = page(metrics)
    assert 'kfpytorch_job_failures_total{cause="oom-gpu"} 0.0' in before
    metrics.failures.add("oom-gpu")
    metrics.creates.add("created")
    assert len(page(metrics)) == len(before)


def test_age_is_that_of_the_oldest_namespace_of_each_watched_kind():
    clock = [100.0]
    status = WatchStatus(lambda: clock[0])
    for kind, namespace in (("pods", "a"), ("pods", "b"), ("workloads", ""), ("jobs", "")):
        status.set_state(kind, namespace, WatchState.SYNCING)
    clock[0] = 107.0
    assert status.ages() == {("pods",): 7.0, ("workloads",): 7.0, ("jobs",): 7.0}
    status.receive("pods", "a")
    status.receive("jobs", "")
    status.set_state("pods", "a", WatchState.SYNCED)
    status.set_state("workloads", "", WatchState.NOT_SERVED)
    status.set_state("jobs", "", WatchState.STALE)
    clock[0] = 110.0
    assert status.ages() == {("pods",): 10.0, ("jobs",): 3.0}
    status.set_state("jobs", "", WatchState.FORBIDDEN)
    assert status.ages() == {("pods",): 10.0}


def test_current_failures_are_described_with_the_affected_kinds():
    status = WatchStatus()
    for kind in ("jobs", "pods"):
        status.set_state(kind, "", WatchState.STALE, "no answer")
    for namespace in "abcd":
        status.set_state("events", namespace, WatchState.FORBIDDEN, f"forbidden in {namespace}")
    assert status.describe_failures() == (
        "cannot list jobs, pods: no answer; cannot list events in a: forbidden in a; "
        "cannot list events in b: forbidden in b; 2 more failures"
    )
    for namespace in "abcd":
        status.set_state("events", namespace, WatchState.SYNCED)
    status.set_state("jobs", "", WatchState.NOT_SERVED)
    assert status.describe_failures() == "cannot list pods: no answer"
    status.set_state("pods", "", WatchState.SYNCED)
    assert status.describe_failures() == ""
