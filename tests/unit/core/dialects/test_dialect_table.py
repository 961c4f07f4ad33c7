"""Tests of the functions of each dialect, and of the functions that select a dialect."""

from datetime import datetime, timedelta, timezone

import pytest

from backend_plugin.core.dialects.table import DIALECTS, parse_job_name
from backend_plugin.core.judging.replica_pods import is_first_admission
from backend_plugin.core.observed import Job, Pod

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda each: each.name)
def test_probe_of_a_dialect_is_a_job_with_one_replica(dialect):
    probe = dialect.build_probe({"name": "probe", "namespace": "ns"})
    job = dialect.read(probe)
    assert (job.name, job.namespace, [each.replicas for each in job.groups]) == ("probe", "ns", [1])
    assert (probe["apiVersion"], probe["kind"]) == (dialect.resource.api_version, dialect.name)
    assert job.dialect == dialect.name
    assert not dialect.is_suspended(probe)


@pytest.mark.parametrize(
    ("pod", "job"),
    [
        ("a-b-worker-12", "a-b"),
        ("a-master-0", "a"),
        ("a-worker", ""),
        ("worker-0", ""),
        ("a-b-node-0-12-x1y2z", "a-b"),
        ("a-node-0", "a"),
        ("a-node-1-0-x1y2z", ""),
    ],
)
def test_job_name_is_parsed_from_a_pod_name(pod, job):
    assert parse_job_name(pod) == job


@pytest.mark.parametrize(
    ("generation", "late", "first"), [(1, 0, False), (2, 1, True), (2, 60, False), (3, 1, False)]
)
def test_resumed_job_without_earlier_pods_is_admitted_for_the_first_time(generation, late, first):
    job = Job(name="a", started=START, generation=generation)
    pod = Pod(name="a-worker-0", created=START + timedelta(seconds=late))
    assert is_first_admission(job, [pod]) is first
