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
    observe,
)

from backend_plugin.core import job_conditions
from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.judging import event_terminations, file_terminations, final_status
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.job_status import JobState
from backend_plugin.core.judging.log_links import build_links
from backend_plugin.core.observed import Event, Observed
from backend_plugin.core.reading import parse_time
from backend_plugin.core.settings.logs import LogLinkSettings, LogTemplate

SCALES = {"nodes": 3, "min_nodes": 2}


def derive(job, *pods, **more) -> list[tuple[str, str, float | None]]:
    """Return the type, reason and time of each condition."""
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


@pytest.mark.parametrize(
    ("kind", "name", "restarts"),
    [
        ("Pod", "j-node-0-1-aaaaa", True),
        ("Pod", "j-launcher-0-0-aaaaa", True),
        ("Pod", "j-node-0-0-aaaaa", False),
        ("TrainJob", "j", False),
    ],
)
def test_start_of_another_pod_shows_that_the_job_has_run(kind, name, restarts):
    event = {"reason": "Started", "involvedObject": {"kind": kind, "name": name}}
    pod = build_pod(0)
    pod["metadata"]["name"] = "j-node-0-0-aaaaa"
    found = [each[0] for each in derive(build_job(), pod, events=[event])]
    assert found == ([job_conditions.RESTARTING] if restarts else [])


# ---- pods


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


@pytest.mark.parametrize(
    ("pods", "started"),
    [
        ([build_pod(0, created=3)], None),
        ([build_pod(0, created=3), build_pod(1, created=8)], 8),
        ([build_pod(0, created=30, attempt=1)], 0),
    ],
)
def test_job_starts_when_all_nodes_of_the_first_attempt_exist(pods, started):
    job = observe(build_job(), *pods).job
    assert job.started == (None if started is None else BEGAN + timedelta(seconds=started))


# ---- derived ends


@pytest.mark.parametrize(
    ("pods", "ended"),
    [
        ([build_ended(0, finished=80), build_ended(1, finished=90), build_pod(2)], 90),
        ([build_ended(0, finished=80), build_ended(1, finished=90)], 90),
        # It has taken the resources of the first one, and finds nothing to join.
        ([build_ended(0, finished=80), build_ended(1, finished=90), build_running(2, 85)], 90),
        ([build_ended(0, finished=80), build_ended(1, finished=90), build_running(2, 60)], None),
        ([build_ended(0, finished=80), build_running(1), build_pod(2)], None),
        ([build_ended(0, finished=80), build_pod(1), build_pod(2)], None),
        ([build_pod(0, "Succeeded"), build_pod(1, "Succeeded")], None),
    ],
)
def test_elastic_job_succeeds_without_nodes_that_were_never_placed(pods, ended):
    found = derive(build_job(**SCALES), *pods)[1:]
    assert found == ([] if ended is None else [(job_conditions.SUCCEEDED, "NodesSucceeded", ended)])
    job = observe(build_job(**SCALES), *pods).job
    assert job.unfinished is (ended is not None)


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
    observed = observe(build_job(**options), *pods)
    assert observed.job.unfinished is fails
    end = build_condition("Failed", reason="FailedJobs")
    ended = derive(build_job(end, **options), *pods)
    assert [each[1] for each in ended if each[0] == job_conditions.FAILED] == ["FailedJobs"]


@pytest.mark.parametrize(("restarts", "spec"), [(0, {}), (2, None)])
def test_job_without_restarts_needs_no_spec_change_to_stop(restarts, spec):
    job = observe(build_job(max_restarts=restarts, ttl_seconds=5)).job
    assert DIALECTS["TrainJob"].build_stop_spec(job) == spec


def test_observed_state_without_a_job_is_unchanged():
    observed = observe(None, build_running(0), build_ended(0, 1, suffix="first"))
    assert DIALECTS["TrainJob"].interpret(observed) is observed
    assert list_pods(observed) == ["j-node-0-0-aaaaa", "j-node-0-0-first"]


def as_launcher(pod):
    pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "launcher"
    pod["metadata"]["name"] = pod["metadata"]["name"].replace("node", "launcher")
    return pod


def as_other_node(pod):
    pod["metadata"]["labels"]["kfpytorch.flyte.org/first-index"] = "1"
    return pod


@pytest.mark.parametrize(
    ("options", "pods", "expected"),
    [
        ({}, [build_running(0)], ["j-node-0-0-aaaaa", "j-node-0-1", "j-node-0-2"]),
        ({"launcher": True}, [], ["j-launcher-0-0", "j-node-0-0", "j-node-0-1"]),
        (
            {"launcher": True},
            [as_launcher(build_running(0)), as_other_node(build_running(1))],
            ["j-launcher-0-0-aaaaa", "j-node-0-0", "j-node-0-1-aaaaa"],
        ),
    ],
)
def test_log_link_has_the_name_of_the_pod_or_the_known_part_of_it(options, pods, expected):
    logs = LogLinkSettings(templates=(LogTemplate(name="L", template_uris=("{{ .podName }}",)),))
    observed = observe(build_job(nodes=3, **options), *pods)
    links = build_links(observed.job, observed.pods, JudgingContext(logs=logs), BEGAN)
    assert [each.uri for each in links] == expected


@pytest.mark.parametrize(
    ("pod", "node"), [("j-launcher-0-0-gone1", "node-0"), ("j-node-0-0-gone1", "node-1")]
)
def test_event_and_error_file_of_a_removed_mpi_pod_are_those_of_its_node(pod, node):
    event = Event(reason="Preempted", kind="Pod", name=pod, at=parse_time(at(80)))
    (death,) = event_terminations.list_event_terminations([event], (), None, {}, launcher=True)
    assert death.failure.replica == node
    error = {"worker": pod, "message": "ValueError: no", "timestamp": at(80)}
    files = observe(None, error_files=[{"path": "error.pb", "document": {"error": error}}]).error_files
    (death,) = file_terminations.list_file_terminations(files, (), {}, launcher=True)
    assert death.failure.replica == node


def test_error_file_of_a_removed_mpi_pod_names_its_node_if_the_job_succeeded():
    error = {"worker": "j-node-0-0-gone1", "message": "ValueError: no", "timestamp": at(90)}
    observed = observe(
        build_job(build_condition("Complete", 92), launcher=True),
        error_files=[{"path": "error.pb", "document": {"error": error}}],
    )
    condition = observed.job.end_condition
    status = final_status.build_final_status(observed, JobState.SUCCEEDED, condition, {})
    assert status.death.failure.replica == "node-1"
