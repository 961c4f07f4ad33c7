"""Tests of reading, cancelling, ending and deleting a TrainJob, and of the functions of both dialects."""

import json
from datetime import timedelta

import pytest
from msgspec import structs
from train_job_objects import (
    BEGAN,
    build_condition,
    build_ended,
    build_job,
    build_pod,
    build_running,
    build_workload,
    observe,
)

from backend_plugin.core import cleanup
from backend_plugin.core.dialects.table import DIALECTS, parse_job_name, read_job
from backend_plugin.core.dialects.trainjob import options
from backend_plugin.core.dialects.trainjob.options import JobOptions
from backend_plugin.core.job import Deadlines
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.replica_pods import is_first_admission
from backend_plugin.core.judging.verdict import Phase, Verdict
from backend_plugin.core.observed import Job, JobLimit, Observed, Pod, ReplicaSpec
from backend_plugin.core.ownership import find_orphan_candidate
from backend_plugin.core.pipeline import judge
from backend_plugin.core.scheduling import companions
from backend_plugin.core.scheduling.registry import get_deactivation
from backend_plugin.core.settings.judging import JudgingSettings
from backend_plugin.embedded.objects import merge_patch
from backend_plugin.shell.job_encoding import encode_summary

RULES = JudgingContext(
    deadlines=Deadlines(active_seconds=100), judging=JudgingSettings(no_status_timeout=timedelta(seconds=50))
)
COMPLETE = build_condition("Complete", reason="AllJobsCompleted")
NODES = [build_running(0), build_running(1)]
WORKLOAD = build_workload(active=True)
DIALECT = DIALECTS["TrainJob"]


def judged(observed: Observed, seconds: float = 200) -> tuple[Verdict, cleanup.CleanupActions]:
    now = BEGAN + timedelta(seconds=seconds)
    verdict = judge(observed, RULES, now)
    return verdict, cleanup.plan_cleanup(observed, verdict, now)


def test_job_past_its_deadline_is_suspended_and_its_workload_deactivated():
    job = build_job(max_restarts=1)
    verdict, todo = judged(observe(job, *NODES, pod_groups=[WORKLOAD]))
    assert (verdict.phase, verdict.reason) == (Phase.FAILED, "DeadlineExceeded")
    assert todo.patch["spec"] == {"suspend": True}
    (group,) = todo.groups
    assert (group.object_name or group.name) == "trainjob-j-12345"
    assert get_deactivation(group) == {"spec": {"active": False}}
    assert (todo.pods, todo.stops, todo.ends, todo.delete) == ((), (), False, False)
    ended = merge_patch(job, todo.patch)
    later, nothing = judged(observe(ended, pod_groups=[{**WORKLOAD, "spec": {"active": False}}]), seconds=210)
    assert not nothing
    assert (later.phase, later.reason, later.message) == (verdict.phase, verdict.reason, verdict.message)


@pytest.mark.parametrize("changed", [{"foreign": True}, {"active": False}, {"api": "other"}])
def test_only_an_active_workload_of_the_job_is_deactivated(changed):
    observed = observe(build_job(), *NODES, pod_groups=[WORKLOAD])
    groups = tuple(structs.replace(each, **changed) for each in observed.pod_groups)
    assert judged(structs.replace(observed, pod_groups=groups))[1].groups == ()


def test_cancelled_job_ends_by_its_pods_which_keep_their_logs():
    job = build_job(max_disruptions=10)
    todo = cleanup.plan_cancellation(observe(job, *NODES), "wrong data", BEGAN + timedelta(seconds=50))
    assert todo.patch.keys() == {"metadata"}
    verdict, later = judged(observe(merge_patch(job, todo.patch), *NODES), seconds=51)
    assert (verdict.reason, verdict.phase) == ("Cancelled", Phase.FAILED)
    assert [each.name for each in later.stops] == ["j-node-0-0-aaaaa", "j-node-0-1-aaaaa"]
    assert (later.patch, later.pods, later.ends) == (None, (), False)


@pytest.mark.parametrize(
    ("options", "pods"),
    [
        ({"max_restarts": 1}, NODES),
        ({"max_disruptions": 10}, [build_pod(0), build_pod(1)]),
        ({"max_disruptions": 10}, []),
    ],
    ids=["restarted", "pending", "none"],
)
def test_cancelled_job_that_cannot_end_by_its_pods_is_suspended(options, pods):
    todo = cleanup.plan_cancellation(observe(build_job(**options), *pods), "", BEGAN)
    assert todo.patch["spec"] == {"suspend": True}


def test_pod_group_of_a_job_that_this_server_has_suspended_is_deleted_with_the_last_pod():
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": {}}
    job = build_job(max_restarts=1)
    job["metadata"]["annotations"][companions.ANNOTATION] = json.dumps([group])
    suspended = merge_patch(job, judged(observe(job, *NODES))[1].patch)
    for pods, left in (([build_running(0)], 0), ([build_ended(0, 143)], 1), ([], 1)):
        assert len(cleanup.find_leftover_companions(observe(suspended, *pods, pod_groups=[group]))) == left
    assert not cleanup.is_missing_companions(observe(suspended))
    # A queue has suspended this job, and will resume it.
    waiting = {**job, "spec": {**job["spec"], "suspend": True}}
    assert not cleanup.find_leftover_companions(observe(waiting, pod_groups=[group]))
    assert cleanup.is_missing_companions(observe(waiting))


def test_job_with_too_many_disruptions_is_suspended_although_trainer_continues_it():
    job = build_job(max_disruptions=1)
    pods = build_running(0, attempt=2, created=40), build_running(1, attempt=2, created=40)
    verdict, todo = judged(observe(job, *pods, pod_groups=[WORKLOAD]), seconds=60)
    assert verdict.phase.is_failure
    assert todo.patch.keys() == {"metadata"}
    assert (todo.ends, todo.pods, len(todo.groups)) == (True, (), 1)
    kept = merge_patch(job, {**todo.patch, "spec": {"suspend": True}})
    assert not judged(observe(kept, *pods), seconds=61)[1].ends


@pytest.mark.parametrize(
    ("ttl", "seconds", "expired"),
    [(None, 10_000, False), (60, 159, False), (60, 161, True), (0, 129, False), (0, 131, True)],
)
def test_job_is_deleted_after_its_time_to_live(ttl, seconds, expired):
    job = build_job(COMPLETE, max_restarts=1, **({} if ttl is None else {"ttl_seconds": ttl}))
    observed = observe(job, build_ended(0), build_ended(1), outputs=True)
    assert cleanup.is_expired(observed.job, BEGAN + timedelta(seconds=seconds)) is expired
    assert judged(observed, seconds)[1].delete is expired


def test_time_to_live_counts_from_the_verdict_if_this_server_ended_the_job():
    job = build_job(max_restarts=1, ttl_seconds=60)
    kept = observe(merge_patch(job, judged(observe(job, *NODES), seconds=200)[1].patch)).job
    assert [cleanup.is_expired(kept, BEGAN + timedelta(seconds=each)) for each in (259, 261)] == [False, True]
    assert not cleanup.is_expired(observe(job, *NODES).job, BEGAN + timedelta(seconds=10_000))


def test_time_of_the_verdict_is_the_reported_end_of_a_job_that_this_server_has_suspended():
    job = build_job(max_restarts=1)
    verdict, todo = judged(observe(job, *NODES), seconds=200)
    for manifest, seconds in ((job, None), (merge_patch(job, todo.patch), 200)):
        message = encode_summary(read_job(manifest), verdict)
        ended = message.ended.ToDatetime(BEGAN.tzinfo) if message.HasField("ended") else None
        assert ended == (None if seconds is None else BEGAN + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("ttl", "hours", "is_orphan"), [(None, 2.9, False), (None, 3, True), (86_400, 3, False)]
)
def test_time_of_the_verdict_is_the_end_of_an_orphan_that_this_server_has_suspended(ttl, hours, is_orphan):
    job = build_job(max_restarts=1, **({} if ttl is None else {"ttl_seconds": ttl}))
    job["metadata"]["annotations"] |= {
        "kfpytorch.flyte.org/task": '{"execution": "f1"}',
        "kfpytorch.flyte.org/output-prefix": "s3://b/f1/n0/0",
    }
    ended = merge_patch(job, judged(observe(job, *NODES), seconds=7_200)[1].patch)
    now, hour = BEGAN + timedelta(hours=hours), timedelta(hours=1)
    assert (find_orphan_candidate(read_job(ended), now, hour) is not None) is is_orphan


def test_job_is_read_with_the_options_of_its_annotation():
    found = DIALECT.read(build_job(nodes=4, min_nodes=2, ttl_seconds=60, max_restarts=3))
    assert (found.name, found.namespace, found.uid, found.created) == ("j", "ns", "u", BEGAN)
    assert found.dialect == "TrainJob"
    assert found.groups == (ReplicaSpec(role="node", replicas=4, restarts=True),)
    assert (found.elastic, found.scales, found.nproc_per_node) == (True, True, 8)
    assert (found.ttl, found.expires, found.clean_pod_policy) == (timedelta(seconds=60), True, "None")
    assert (found.owns_pods, found.owned, found.ending) == (False, False, False)
    # A job of another client has no options.
    found = DIALECT.read(build_job())
    assert (found.elastic, found.scales, found.ttl, found.expires) == (False, False, None, False)
    assert DIALECT.read(build_job(suspend=True)).ending


def test_number_of_nodes_is_limited_and_a_malformed_manifest_has_one():
    for nodes, count in {None: 1, 0: 0, -1: 0, 7: 7, 10**9: 100_000, "x": 1}.items():
        assert DIALECT.read({**build_job(), "spec": {"trainer": {"numNodes": nodes}}}).replicas == count
    for malformed in ({}, {"metadata": None, "spec": 3, "status": []}):
        assert DIALECT.read(malformed).replicas == 1


def test_options_are_written_without_their_defaults_and_read_despite_invalid_ones():
    texts = {
        "{}": JobOptions(),
        '{"minNodes":2,"maxRestarts":1}': JobOptions(min_nodes=2, max_restarts=1),
        '{"maxDisruptions":0,"ttlSeconds":5}': JobOptions(max_disruptions=0, ttl_seconds=5),
    }
    assert {options.encode(each): each for each in texts.values()} == texts
    assert {text: options.decode(text) for text in texts} == texts
    for text in ("", "{", "[]", '{"minNodes": "x"}', "\ud800", "[" * 100_000):
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
    assert dialect.is_suspended(merge_patch(probe, {"spec": dialect.suspend_spec}))


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
    assert is_first_admission(job, [Pod(name="a-worker-0", created=BEGAN + timedelta(seconds=late))]) is first
