"""Tests of the conditions that are derived from the pods of a TrainJob, and of the pods that count."""

from datetime import timedelta

import pytest
from train_job_objects import (
    BEGAN,
    at,
    build_condition,
    build_ended,
    build_job,
    build_pod,
    build_running,
    build_workload,
    observe,
)

from backend_plugin.core import job_conditions
from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.job import Deadlines
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.job_events import build_warning_events, can_need_warning
from backend_plugin.core.judging.log_links import build_links
from backend_plugin.core.judging.verdict import Phase
from backend_plugin.core.observed import Observed
from backend_plugin.core.pipeline import build_start_patch, judge
from backend_plugin.core.reading import parse_time
from backend_plugin.core.settings.judging import JudgingSettings, LogLinkSettings, LogTemplate

ENDED = [build_ended(0, finished=80), build_ended(1, finished=90)]
ANNOTATION = "kfpytorch.flyte.org/run-start"
RULES = JudgingContext(deadlines=Deadlines(active_seconds=100))
RESUMED = {"type": "Suspended", "status": "False", "reason": "Resumed", "lastTransitionTime": at(60)}
OURS = {"manager": "kfpytorch.flyte.org/connector"}
KUEUE = {"manager": "kueue.x-k8s.io/manager"}
LAUNCHER = build_running(0)
LAUNCHER["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "launcher"
LAUNCHER["metadata"]["name"] = "j-launcher-0-0-aaaaa"
OTHER_NODE = build_running(1)
OTHER_NODE["metadata"]["labels"]["kfpytorch.flyte.org/first-index"] = "1"


def derive(job, *pods, **more) -> list[tuple[str, str, float | None]]:
    found = observe(job, *pods, **more).job
    return [
        (each.type, each.reason, None if each.since is None else (each.since - BEGAN).total_seconds())
        for each in found.conditions
    ]


def list_pods(observed: Observed) -> list[str]:
    return [each.name for each in observed.pods]


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([], []),
        ([build_pod(0), build_pod(1)], []),
        ([build_running(0, 7), build_pod(1)], [(job_conditions.RUNNING, "", 7)]),
        ([build_running(0, 7), build_running(1, 5)], [(job_conditions.RUNNING, "", 5)]),
        ([build_ended(0), build_ended(1)], [(job_conditions.RUNNING, "", 5)]),
        ([build_pod(0, "Running"), build_pod(1)], [(job_conditions.RUNNING, "", None)]),
        ([build_pod(0, attempt=1, created=40)], [(job_conditions.RESTARTING, "", 40)]),
    ],
)
def test_start_and_restart_are_derived_from_the_pods(pods, expected):
    assert derive(build_job(), *pods) == expected


def test_start_of_another_pod_shows_that_the_job_has_run():
    started = {
        ("Pod", "j-node-0-1-aaaaa"): [job_conditions.RESTARTING],
        ("Pod", "j-launcher-0-0-aaaaa"): [job_conditions.RESTARTING],
        ("Pod", "j-node-0-0-aaaaa"): [],
        ("TrainJob", "j"): [],
    }
    for (kind, name), expected in started.items():
        event = {"reason": "Started", "involvedObject": {"kind": kind, "name": name}}
        assert [each[0] for each in derive(build_job(), build_pod(0), events=[event])] == expected


def test_only_the_newest_pod_of_each_node_of_the_last_attempt_counts():
    pods = [
        build_ended(0, 1, suffix="first"),
        build_running(0, attempt=1, suffix="older", created=10),
        build_running(0, attempt=1, suffix="newer", created=20),
        build_pod(1, attempt=1, created=10),
        {"metadata": {"name": "other", "labels": {}}},
    ]
    assert list_pods(observe(build_job(), *pods)) == ["j-node-0-0-newer", "j-node-0-1-aaaaa", "other"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (build_running(0, created=30, deleted=40), build_pod(0, created=20)),
        (build_ended(0, 1, created=30), build_pod(0, created=20)),
        (build_pod(0, created=20), build_pod(0, created=30)),
    ],
    ids=["deleted", "over", "older"],
)
def test_deleted_or_ended_or_older_pod_is_superseded(one, other):
    one["metadata"]["name"], other["metadata"]["name"] = "j-node-0-0-ooooo", "j-node-0-0-nnnnn"
    for pods in ([one, other], [other, one]):
        assert list_pods(observe(build_job(nodes=1), *pods)) == ["j-node-0-0-nnnnn"]


def test_job_starts_when_all_nodes_of_the_first_attempt_exist():
    def get_start(*pods):
        return observe(build_job(), *pods).job.started

    assert get_start(build_pod(0, created=3)) is None
    assert get_start(build_pod(0, created=3), build_pod(1, created=8)) == parse_time(at(8))
    assert get_start(build_pod(0, created=30, attempt=1)) == BEGAN


@pytest.mark.parametrize(
    ("pods", "ended"),
    [
        ([*ENDED, build_pod(2)], 90),
        (ENDED, 90),
        # It has taken the resources of the first one, and finds nothing to join.
        ([*ENDED, build_running(2, 85)], 90),
        ([*ENDED, build_running(2, 60)], None),
        ([ENDED[0], build_running(1), build_pod(2)], None),
        ([ENDED[0], build_pod(1), build_pod(2)], None),
        ([build_pod(0, "Succeeded"), build_pod(1, "Succeeded")], None),
    ],
)
def test_elastic_job_succeeds_without_nodes_that_were_never_placed(pods, ended):
    scales = build_job(nodes=3, min_nodes=2)
    found = derive(scales, *pods)[1:]
    assert found == ([] if ended is None else [(job_conditions.SUCCEEDED, "NodesSucceeded", ended)])
    assert observe(scales, *pods).job.unfinished is (ended is not None)


def test_job_of_fixed_size_needs_all_nodes_to_succeed():
    for options in ({"nodes": 2}, {"nodes": 2, "min_nodes": 2}):
        found = derive(build_job(**options), build_ended(0), build_ended(1))
        assert found == [(job_conditions.RUNNING, "", 5)]


@pytest.mark.parametrize(
    ("attempt", "options", "fails"),
    [
        (3, {"max_restarts": 1, "max_disruptions": 2}, False),
        (4, {"max_restarts": 1, "max_disruptions": 2}, True),
        (1, {"max_disruptions": 0}, True),
        (9, {"max_restarts": 1}, False),
    ],
)
def test_job_with_more_restarts_than_the_platform_permits_fails(attempt, options, fails):
    pods = build_pod(0, attempt=attempt, created=50), build_pod(1, attempt=attempt, created=60)
    found = derive(build_job(**options), *pods)[1:]
    assert found == ([(job_conditions.FAILED, "DisruptionLimitExceeded", 60)] if fails else [])
    assert observe(build_job(**options), *pods).job.unfinished is fails
    ended = derive(build_job(build_condition("Failed", reason="FailedJobs"), **options), *pods)
    assert [each[1] for each in ended if each[0] == job_conditions.FAILED] == ["FailedJobs"]


@pytest.mark.parametrize(("restarts", "spec"), [(0, {}), (2, None)])
def test_job_without_restarts_needs_no_spec_change_to_stop(restarts, spec):
    job = observe(build_job(max_restarts=restarts, ttl_seconds=5)).job
    assert DIALECTS["TrainJob"].build_stop_spec(job) == spec


def test_observed_state_without_a_job_is_unchanged():
    observed = observe(None, build_running(0), build_ended(0, 1, suffix="first"))
    assert DIALECTS["TrainJob"].interpret(observed) is observed
    assert list_pods(observed) == ["j-node-0-0-aaaaa", "j-node-0-0-first"]


@pytest.mark.parametrize(
    ("launcher", "pods", "expected"),
    [
        (False, [build_running(0)], ["j-node-0-0-aaaaa", "j-node-0-1", "j-node-0-2"]),
        (True, [], ["j-launcher-0-0", "j-node-0-0", "j-node-0-1"]),
        (True, [LAUNCHER, OTHER_NODE], ["j-launcher-0-0-aaaaa", "j-node-0-0", "j-node-0-1-aaaaa"]),
    ],
)
def test_log_link_has_the_name_of_the_pod_or_the_known_part_of_it(launcher, pods, expected):
    logs = LogLinkSettings(templates=(LogTemplate(name="L", template_uris=("{{ .podName }}",)),))
    observed = observe(build_job(nodes=3, launcher=launcher), *pods)
    links = build_links(observed.job, observed.pods, JudgingContext(logs=logs), BEGAN)
    assert [each.uri for each in links] == expected


@pytest.mark.parametrize(
    ("pod", "node"), [("j-launcher-0-0-gone1", "node-0"), ("j-node-0-0-gone1", "node-1")]
)
def test_event_and_error_file_of_a_removed_mpi_pod_belong_to_its_node(pod, node):
    error = {"worker": pod, "message": "ValueError: no", "timestamp": at(90)}
    files = {"error_files": [{"path": "error.pb", "document": {"error": error}}]}
    event = {"reason": "Preempted", "involvedObject": {"kind": "Pod", "name": pod}, "lastTimestamp": at(80)}
    for kind, state in (("Failed", files), ("Complete", files), ("Failed", {"events": [event]})):
        observed = observe(build_job(build_condition(kind, 92), launcher=True), **state)
        verdict = judge(observed, JudgingContext(), BEGAN + timedelta(seconds=200))
        assert verdict.message.startswith(f"{node} failed: ")


def build_started_job(start: float | None, *conditions):
    job = build_job(*conditions, max_restarts=2)
    if start is not None:
        job["metadata"]["annotations"][ANNOTATION] = at(start)
    return job


def list_nodes(since: float, attempt: int):
    return [build_running(index, since, created=since - 1, attempt=attempt) for index in (0, 1)]


DEADLINES = {
    "before the deadline": (build_started_job(5), 104, False),
    "after it": (build_started_job(5), 106, True),
    "not recorded": (build_started_job(None), 106, False),
    "not recorded, after it": (build_started_job(None), 181, True),
    # Time in a queue is not run time, so a suspension starts the run again.
    "recorded before a suspension": (build_started_job(5, RESUMED), 179, False),
    "recorded after one": (build_started_job(62, RESUMED), 163, True),
    "recorded in the future": (build_started_job(1_000), 181, True),
}


@pytest.mark.parametrize(("job", "now", "is_over"), DEADLINES.values(), ids=DEADLINES)
def test_deadline_counts_from_the_recorded_start(job, now, is_over):
    verdict = judge(observe(job, *list_nodes(80, attempt=1)), RULES, BEGAN + timedelta(seconds=now))
    expected = (Phase.FAILED, "DeadlineExceeded") if is_over else (Phase.RUNNING, "Running")
    assert (verdict.phase, verdict.reason) == expected


def find_start(job, *pods, rules: JudgingContext = RULES) -> str | None:
    observed = observe(job, *pods)
    patch = build_start_patch(observed.job, rules, lambda: observed)
    return None if patch is None else patch["metadata"]["annotations"][ANNOTATION]


def test_start_is_recorded_once_the_job_runs_and_again_after_a_suspension():
    assert find_start(build_job(), build_pod(0), build_pod(1)) is None
    assert find_start(build_job(), build_running(0, 7), build_pod(1)) == at(7)
    assert find_start(build_started_job(7), build_running(0, 7), build_pod(1)) is None
    # The first pods of the second attempt have not run.
    assert find_start(build_job(), build_pod(0, attempt=1)) is None
    assert find_start(build_started_job(7, RESUMED), *list_nodes(70, attempt=0)) == at(70)
    # The start is not before the job could run.
    assert find_start(build_job(RESUMED), *list_nodes(50, attempt=0)) == at(60)


def test_start_is_recorded_only_with_a_deadline_before_the_end_of_a_train_job():
    nodes = list_nodes(5, attempt=0)
    assert find_start(build_job(), *nodes, rules=JudgingContext()) is None
    assert find_start(build_job(build_condition("Complete")), *nodes) is None
    assert find_start(None) is None
    platform = JudgingContext(judging=JudgingSettings(active_deadline=timedelta(minutes=1)))
    assert find_start(build_job(), *nodes, rules=platform) == at(5)
    assert find_start({"kind": "PyTorchJob", "metadata": {"name": "j", "creationTimestamp": at(0)}}) is None


def observe_queued(*patches, suspend: bool = False, status: str = "True", **values) -> Observed:
    """Return the state of a job in a queue with these runtime patches; `values` are its options."""
    job = build_job(suspend=suspend, **values)
    job["spec"]["runtimePatches"] = [*patches]
    workload = build_workload(build_condition("Admitted", 3, status=status))
    return observe(job, build_running(0), build_pod(1), pod_groups=[workload])


def list_events(observed: Observed) -> list[tuple[str, str]]:
    if not can_need_warning(observed.job, observed.pod_groups):
        return []
    return [(each["type"], each["reason"]) for each in build_warning_events(observed, BEGAN)]


OUTDATED = {
    "no patch": (observe_queued(), True),
    "only ours": (observe_queued(OURS, named_runtime=True), True),
    "both": (observe_queued(OURS, KUEUE, named_runtime=True), False),
    "only that of Kueue": (observe_queued(KUEUE), False),
    "suspended": (observe_queued(suspend=True), False),
    "not admitted": (observe_queued(status="False"), False),
    "without a queue": (observe(build_job(), build_running(0)), False),
}


@pytest.mark.parametrize(("observed", "is_outdated"), OUTDATED.values(), ids=OUTDATED)
def test_a_queue_without_a_patch_is_outdated(observed, is_outdated):
    assert list_events(observed) == ([("Warning", "QueueOutdated")] if is_outdated else [])
    message = judge(observed, JudgingContext(), BEGAN).message
    assert ("Kueue 0.17.0 or newer" in message) is is_outdated
    assert "removed the patch" not in message


def test_a_lost_patch_is_reported_with_the_same_event_name_on_every_server():
    assert "removed the patch" in judge(observe_queued(named_runtime=True), JudgingContext(), BEGAN).message
    first, second = (build_warning_events(observe_queued(), BEGAN) for _ in range(2))
    assert first == second


def test_other_jobs_have_no_such_event():
    job = {"kind": "PyTorchJob", "metadata": {"name": "j", "uid": "u", "creationTimestamp": at(0)}}
    observed = observe(job, pod_groups=[build_workload(build_condition("Admitted", 3))])
    assert list_events(observed) == []
    assert build_warning_events(observed, BEGAN) == []
    assert build_warning_events(Observed(job=None), BEGAN) == []
