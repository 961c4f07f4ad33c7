"""Tests for the lookup of jobs by name and of replicas by rank."""

import re
from dataclasses import dataclass

import pytest
from builders import a_run

from backend_plugin.core import job_lookup
from backend_plugin.core.job import Deadlines
from backend_plugin.core.observed import Job, ReplicaSpec
from backend_plugin.core.task_annotation import TaskAnnotation


@dataclass
class Named:
    name: str
    namespace: str = "ns"
    origin: TaskAnnotation | None = None


def build_named_job(name: str, execution: str, node: str = "n0", attempt: int = 0) -> Named:
    run = a_run(execution=execution, node_id=node, attempt=attempt)
    return Named(name, origin=TaskAnnotation(run=run, deadlines=Deadlines(), task_config={}))


JOBS = [
    build_named_job("f1-n0-0-a", "f1"),
    build_named_job("f1-n0-1-b", "f1", attempt=1),
    build_named_job("f12-n0-0-c", "f12"),
    build_named_job("long-executi-0-d", "long-execution-id", node="n3"),
    build_named_job("f7-n0-0-e", "f7"),
    build_named_job("f7-n1-0-f", "f7", node="n1"),
    Named("by-hand"),
    Named("by-hand", namespace="other"),
    Named("other-hand", namespace="other"),
]


def test_job_is_found_by_its_name_prefix_or_execution():
    meant = {
        "f1-n0-0-a": "f1-n0-0-a",
        "f1": "f1-n0-1-b",  # The last attempt of execution f1; f12 does not match.
        "f1-n0": "f1-n0-1-b",
        "f1-n0-0": "f1-n0-0-a",
        "f12": "f12-n0-0-c",
        "long-execution-id": "long-executi-0-d",
        "f7-n1": "f7-n1-0-f",
        "ns/by-hand": "by-hand",
        "other": "other-hand",
        "other/by": "by-hand",
    }
    assert {word: job_lookup.find_job(word, JOBS).name for word in meant} == meant


MANY = [Named(f"j{number}") for number in range(10)]


@pytest.mark.parametrize(
    ("word", "jobs", "message"),
    [
        ("by-hand", JOBS, "by-hand matches ns/by-hand, other/by-hand; write more of the name"),
        ("j", MANY, "j matches ns/j0, ns/j1, ns/j2, ns/j3, ns/j4, ns/j5 and 4 more;"),
        ("by-hend", JOBS, "there is no job by-hend; did you mean by-hand?"),
        ("long-exacuti", JOBS, "there is no job long-exacuti; did you mean long-executi-0-d?"),
        ("zzz", JOBS, "there is no job zzz"),
        ("", JOBS, "there is no job "),
        ("other/zzz", JOBS, "there is no job other/zzz; the existing jobs are by-hand, other-hand"),
        ("none/zzz", JOBS, "there is no job none/zzz, and no other job in that namespace"),
        ("zzz", [], "there is no job zzz, and no other job"),
    ],
)
def test_error_about_a_job_name_lists_the_matching_or_similar_jobs(word, jobs, message):
    error = job_lookup.AmbiguousJob if "matches" in message else job_lookup.JobNotFound
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        job_lookup.find_job(word, jobs)


def test_job_suggestions_compare_only_the_latest_jobs():
    jobs = [Named(f"{word}-hand") for word in ("old", *(f"x{number}" for number in range(100)))]
    with pytest.raises(job_lookup.JobNotFound, match=r"^there is no job ald-hand$"):
        job_lookup.find_job("ald-hand", jobs)
    with pytest.raises(job_lookup.JobNotFound, match=r"did you mean .*x99-hand"):
        job_lookup.find_job("y99-hand", jobs)


def test_very_long_name_is_neither_compared_nor_repeated_in_the_error():
    with pytest.raises(job_lookup.JobNotFound) as raised:
        job_lookup.find_job("by-hand" * 100_000, JOBS)
    assert len(str(raised.value)) < 300


def a_job(masters: int, workers: int, **fields: object) -> Job:
    groups = (ReplicaSpec(role="master", replicas=masters), ReplicaSpec(role="worker", replicas=workers))
    return Job(name="j", groups=tuple(group for group in groups if group.replicas), **fields)


@pytest.mark.parametrize(
    ("job", "replica", "ranks"),
    [
        (a_job(1, 2), ("master", 0), range(1)),
        (a_job(1, 2), ("worker", 1), range(2, 3)),
        (a_job(0, 2), ("worker", 1), range(1, 2)),
        (a_job(1, 2, nproc_per_node=4), ("worker", 0), range(4, 8)),
        (a_job(0, 1, nproc_per_node=4, elastic=True), ("worker", 0), range(4)),
        (a_job(0, 1, elastic=True), ("worker", 0), None),
        (a_job(0, 2, nproc_per_node=4, elastic=True), ("worker", 0), None),
    ],
)
def test_ranks_of_a_replica_are_computed_like_the_operator_does(job, replica, ranks):
    assert job_lookup.find_replica_ranks(job, *replica) == ranks


@pytest.mark.parametrize(
    ("job", "rank", "replicas", "ranks"),
    [
        (a_job(1, 2), 0, {"master-0"}, "ranks 0 to 2"),
        (a_job(1, 0), 0, {"master-0"}, "rank 0 only"),
        (a_job(1, 2, nproc_per_node=2), 3, {"worker-0"}, "ranks 0 to 5"),
        (a_job(0, 2, nproc_per_node=2, elastic=True), 3, {"worker-0", "worker-1"}, "ranks 0 to 3"),
    ],
)
def test_rank_belongs_to_one_replica_or_to_any_if_unknown(job, rank, replicas, ranks):
    assert job_lookup.list_replicas_with_rank(job, rank) == replicas
    with pytest.raises(job_lookup.RankNotFound, match=f"job j has no rank 6; it has {ranks}$"):
        job_lookup.list_replicas_with_rank(job, 6)


@pytest.mark.parametrize(
    ("job", "replicas"),
    [
        (a_job(1, 2), ["master-0", "worker-0", "worker-1"]),
        (a_job(0, 2, elastic=True), ["worker-0", "worker-1"]),
        (Job(name="j", groups=(*a_job(0, 1).groups, *a_job(1, 0).groups)), ["master-0", "worker-0"]),
        (Job(name="j", groups=(ReplicaSpec(role="node", replicas=2),)), ["node-0", "node-1"]),
    ],
)
def test_torch_nodes_are_numbered_in_rank_order(job, replicas):
    assert [job_lookup.require_node(job, number) for number in range(len(replicas))] == replicas
    with pytest.raises(job_lookup.RankNotFound):
        job_lookup.require_node(job, len(replicas))


def test_unknown_replica_is_rejected_with_the_existing_replicas():
    assert job_lookup.require_replica(a_job(1, 3), "worker-2") == "worker-2"
    for job, listed in ((a_job(1, 3), "master-0, worker-0 to worker-2"), (a_job(0, 0), "none")):
        with pytest.raises(job_lookup.RankNotFound, match=f"no replica worker-3; it has {listed}$"):
            job_lookup.require_replica(job, "worker-3")
