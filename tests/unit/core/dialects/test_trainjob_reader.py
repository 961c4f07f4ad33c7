"""Tests of reading a TrainJob and its options, and of the functions that both dialects have."""

from datetime import timedelta

import pytest
from train_job_objects import BEGAN, build_job

from backend_plugin.core.dialects.table import DIALECTS, parse_job_name
from backend_plugin.core.dialects.trainjob import options
from backend_plugin.core.dialects.trainjob.options import JobOptions
from backend_plugin.core.judging.replica_pods import is_first_admission
from backend_plugin.core.observed import Job, JobLimit, Pod, ReplicaSpec

DIALECT = DIALECTS["TrainJob"]


def read(manifest) -> Job:
    return DIALECT.read(manifest)


def test_job_is_read_with_the_options_of_its_annotation():
    found = read(build_job(nodes=4, min_nodes=2, ttl_seconds=60, max_restarts=3))
    assert (found.name, found.namespace, found.uid, found.created) == ("j", "ns", "u", BEGAN)
    assert found.dialect == "TrainJob"
    assert found.groups == (ReplicaSpec(role="node", replicas=4, restarts=True),)
    assert (found.elastic, found.scales, found.nproc_per_node) == (True, True, 8)
    assert (found.ttl, found.expires, found.clean_pod_policy) == (timedelta(seconds=60), True, "None")
    assert (found.owns_pods, found.owned, found.ending) == (False, False, False)
    # A job of another client has no options.
    found = read(build_job())
    assert (found.elastic, found.scales, found.ttl, found.expires) == (False, False, None, False)


def test_number_of_nodes_is_limited():
    counts = {None: 1, 0: 0, -1: 0, 7: 7, 10**9: 100_000, "x": 1}
    for nodes, count in counts.items():
        assert read({**build_job(), "spec": {"trainer": {"numNodes": nodes}}}).replicas == count


def test_malformed_manifest_is_read_with_one_replica():
    assert [read(each).replicas for each in ({}, {"metadata": None, "spec": 3, "status": []})] == [1, 1]


def test_suspended_job_is_ending():
    assert read(build_job(suspend=True)).ending
    assert DIALECT.is_suspended(build_job(suspend=True))
    assert DIALECT.end_spec == DIALECT.suspend_spec == {"suspend": True}
    assert DIALECT.ends_by_suspension


@pytest.mark.parametrize(
    ("job_options", "expected"),
    [
        (JobOptions(), "{}"),
        (JobOptions(min_nodes=2, max_restarts=1), '{"minNodes":2,"maxRestarts":1}'),
        (JobOptions(max_disruptions=0, ttl_seconds=5), '{"maxDisruptions":0,"ttlSeconds":5}'),
    ],
)
def test_options_are_written_without_their_defaults(job_options, expected):
    assert options.encode(job_options) == expected
    assert options.decode(expected) == job_options


@pytest.mark.parametrize("text", ["", "{", "[]", '{"minNodes": "x"}', "\ud800", "[" * 100_000])
def test_invalid_options_are_replaced_by_the_defaults(text):
    assert options.decode(text) == JobOptions()


def test_messages_of_trainer_are_recognized():
    assert DIALECT.find_limit("the TrainJob exceeded its deadline") is JobLimit.DEADLINE
    assert DIALECT.find_limit("jobset failed due to one or more") is None
    no_runtime = 'TrainingRuntime "j" not found: must be created before the TrainJob'
    assert DIALECT.is_premature(no_runtime)
    assert not DIALECT.is_premature("spec.trainer.env: Invalid value")
    assert not DIALECTS["PyTorchJob"].is_premature(no_runtime)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda each: each.name)
def test_probe_of_a_dialect_is_a_job_with_one_replica(dialect):
    probe = dialect.build_probe({"name": "probe", "namespace": "ns"})
    job = dialect.read(probe)
    assert (job.name, job.namespace, [each.replicas for each in job.groups]) == ("probe", "ns", [1])
    assert (probe["apiVersion"], probe["kind"]) == (dialect.resource.api_version, dialect.name)
    assert job.dialect == dialect.name
    assert not dialect.is_suspended(probe)


def test_job_name_is_parsed_from_a_pod_name():
    jobs = {
        "a-b-worker-12": "a-b",
        "a-master-0": "a",
        "a-worker": "",
        "worker-0": "",
        "a-b-node-0-12-x1y2z": "a-b",
        "a-node-0": "a",
        "a-node-1-0-x1y2z": "",
    }
    assert {pod: parse_job_name(pod) for pod in jobs} == jobs


@pytest.mark.parametrize(
    ("generation", "late", "first"), [(1, 0, False), (2, 1, True), (2, 60, False), (3, 1, False)]
)
def test_resumed_job_without_earlier_pods_is_admitted_for_the_first_time(generation, late, first):
    job = Job(name="a", started=BEGAN, generation=generation)
    pod = Pod(name="a-worker-0", created=BEGAN + timedelta(seconds=late))
    assert is_first_admission(job, [pod]) is first
