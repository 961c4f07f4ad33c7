# ruff: noqa: E501 - a row a case
"""Tests for the cleanup of a job after a terminal verdict."""

from datetime import timedelta

import pytest
from cluster import BEGAN, FAILED, RUNNING, SUCCEEDED, at, condition, job, observe
from cluster_pods import build_ended_pod, error_file, going, pod, running, with_metadata
from msgspec import structs

from backend_plugin.core import cleanup
from backend_plugin.core.dialects.pytorchjob.manifest import END
from backend_plugin.core.job import Deadlines
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.undisturbed_jobs import is_running_undisturbed, is_still_undisturbed
from backend_plugin.core.judging.verdict import Phase
from backend_plugin.core.judging.verdict_annotation import ANNOTATION
from backend_plugin.core.names import CLEAN_POD_POLICY, PLACE, PLACE_OF
from backend_plugin.core.pipeline import judge, judge_with_expiry
from backend_plugin.core.scheduling import companions
from backend_plugin.core.settings.judging import JudgingSettings
from backend_plugin.embedded.objects import merge_patch

RULES = JudgingContext(
    deadlines=Deadlines(active_seconds=100), judging=JudgingSettings(no_status_timeout=timedelta(seconds=50))
)
WRITTEN = '[{"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": {}}]'
GROUP = {"kind": "PodGroup"}
ELSEWHERE = {**running("worker-1"), "spec": {"nodeName": "another"}}


def judged(observed, seconds=200):
    now = BEGAN + timedelta(seconds=seconds)
    verdict = judge(observed, RULES, now)
    return verdict, cleanup.plan_cleanup(observed, verdict, now)


def names(pods):
    return [each.name for each in pods]


def test_job_past_its_deadline_is_ended_and_keeps_its_verdict():
    first = job(RUNNING)
    verdict, todo = judged(observe(first, running("master-0"), running("worker-0")))
    assert (verdict.phase, verdict.reason, todo.pods) == (Phase.FAILED, "DeadlineExceeded", ())
    patched = merge_patch(first, todo.patch)
    assert patched["spec"]["runPolicy"] == END["runPolicy"]
    later, nothing = judged(observe(patched, pod("master-0")), seconds=10)
    assert nothing == cleanup.NONE
    assert (later.phase, later.reason, later.message) == (verdict.phase, verdict.reason, verdict.message)


def test_job_without_pods_is_suspended_after_its_timeout_and_later_deleted():
    verdict, todo = judged(observe(job(started=None)))
    assert (verdict.phase, verdict.reason) == (Phase.RETRYABLE_FAILED, "OperatorTimeout")
    patched = merge_patch(job(started=None), todo.patch)
    assert patched["spec"]["runPolicy"] == {"suspend": True}
    assert judged(observe(patched))[0].phase is Phase.RETRYABLE_FAILED
    assert judged(observe(patched), seconds=3_700)[1] == cleanup.NONE
    assert judged(observe(patched), seconds=3_900)[1] == cleanup.CleanupActions(delete=True)


def test_running_peers_of_a_failed_replica_are_stopped():
    deleted = going(pod("worker-1"), 60)
    pods = (build_ended_pod("master-0", 1), running("worker-0"), deleted, pod("worker-2", "Pending"))
    verdict, todo = judged(observe(job(RUNNING, FAILED, workers=3), *pods))
    assert verdict.phase is Phase.FAILED
    assert names(todo.pods) == ["j-worker-0", "j-worker-2"]


@pytest.mark.parametrize(("policy", "left"), [("None", slice(1)), ("Running", slice(1)), ("All", slice(2))])
def test_clean_pod_policy_applies_to_finished_pods_only(policy, left):
    manifest = job(RUNNING, SUCCEEDED, workers=2)
    manifest["metadata"]["annotations"] = {CLEAN_POD_POLICY: policy}
    pods = (running("worker-0"), build_ended_pod("worker-1", 0))
    observed = observe(manifest, *pods, outputs=True)
    verdict, todo = judged(observed)
    assert (verdict.phase, todo) == (Phase.SUCCEEDED, cleanup.CleanupActions(pods=observed.pods[left]))


@pytest.mark.parametrize(
    ("seconds", "left"), [(101, ["j-worker-2"]), (129, ["j-worker-2"]), (130, ["j-worker-1", "j-worker-2"])]
)
def test_pending_pods_are_deleted_right_after_a_success_and_running_ones_after_a_delay(seconds, left):
    pods = (build_ended_pod("worker-0", 0), running("worker-1"), pod("worker-2", "Pending", node=""))
    stranger = with_other_owner(running("worker-3"))
    verdict, todo = judged(observe(job(RUNNING, SUCCEEDED, workers=4), *pods, stranger), seconds)
    assert (verdict.phase, todo.patch) == (Phase.SUCCEEDED, None)
    assert names(todo.pods) == left


@pytest.mark.parametrize(
    ("manifest", "pods", "active"),
    [
        (job(RUNNING, SUCCEEDED), [running("worker-0")], True),
        (job(RUNNING, FAILED), [pod("worker-0", "Pending")], True),
        (job(RUNNING, SUCCEEDED), [build_ended_pod("worker-0", 0), build_ended_pod("worker-1", 1)], False),
        (job(RUNNING, SUCCEEDED), [pod("worker-0", metadata={"deletionTimestamp": at(1)})], False),
        (job(RUNNING), [running("worker-0")], False),
    ],
)
def test_finished_job_is_watched_until_no_pod_is_active(manifest, pods, active):
    observed = observe(manifest, *pods)
    assert cleanup.has_active_pods(observed.job, observed.pods) is active


def test_cleanup_is_empty_for_a_running_a_leaving_or_an_absent_job():
    for manifest in (job(RUNNING), with_metadata(job(FAILED), deletionTimestamp=at(60)), None):
        assert judged(observe(manifest), seconds=60)[1] == cleanup.NONE
    assert not cleanup.NONE
    assert cleanup.CleanupActions(delete=True)


def test_success_before_the_verdict_takes_effect_counts():
    _, todo = judged(observe(job(RUNNING), running("master-0")))
    done = merge_patch(job(RUNNING, SUCCEEDED), todo.patch)
    assert judged(observe(done, outputs=True))[0].phase is Phase.SUCCEEDED
    assert judged(observe(done, error_files=[error_file()]))[0].reason == "DeadlineExceeded"


def test_terminal_verdict_is_reported_after_the_task_outputs_are_read():
    observed = observe(job(RUNNING, FAILED), build_ended_pod("master-0", 1))
    assert judged(structs.replace(observed, reading_outputs=True))[0].phase is Phase.RUNNING
    assert judged(observed)[0].phase is Phase.FAILED


@pytest.mark.parametrize(
    ("rules", "seconds", "until"), [(RULES, 20, 40), (RULES, 104, 104), (JudgingContext(), 104, 704)]
)
def test_verdict_expires_when_a_timeout_would_change_it(rules, seconds, until):
    running_job = observe(job(RUNNING), running("master-0"), running("worker-0"))
    result, expiry = judge_with_expiry(running_job, rules, BEGAN + timedelta(seconds=seconds))
    assert (result.phase, expiry) == (Phase.RUNNING, BEGAN + timedelta(seconds=until))


def test_job_cancelled_by_a_user_fails_permanently():
    now = BEGAN + timedelta(seconds=60)
    living = job(RUNNING)
    todo = cleanup.plan_cancellation(observe(living, running("master-0")), "wrong data", now)
    result = judged(observe(merge_patch(living, todo.patch), running("master-0")), seconds=61)[0]
    assert (result.phase, result.reason) == (Phase.FAILED, "Cancelled")
    assert result.message == "cancelled by a user, with `kfpytorch cancel`: wrong data"
    assert cleanup.plan_cancellation(observe(merge_patch(living, todo.patch)), "", now) == cleanup.NONE
    for finished in (job(RUNNING, SUCCEEDED), job(RUNNING, FAILED), None):
        assert cleanup.is_finished(observe(finished))
        assert cleanup.plan_cancellation(observe(finished), "", now) == cleanup.NONE
    assert "cancel`" in str(cleanup.plan_cancellation(observe(living), "", now).patch)


def with_group(manifest, **metadata):
    return with_metadata(manifest, annotations={companions.ANNOTATION: WRITTEN}, **metadata)


@pytest.mark.parametrize(
    ("manifest", "groups", "missing"),
    [
        (with_group(job(started=None)), [], True),
        (with_group(job(started=None)), [{"kind": "Workload"}], True),
        (with_group(job(started=None)), [GROUP], False),
        (job(started=None), [], False),
        (None, [], False),
        (with_group(job(SUCCEEDED, started=None)), [], False),
    ],
)
def test_active_job_gets_a_deleted_pod_group_again(manifest, groups, missing):
    assert cleanup.is_missing_companions(observe(manifest, pod_groups=groups)) is missing


def test_foreign_pod_group_of_the_same_name_is_neither_replaced_nor_deleted():
    cases = (
        (job(started=None), cleanup.is_missing_companions),
        (job(SUCCEEDED), cleanup.find_leftover_companions),
    )
    for manifest, left in cases:
        known = observe(with_group(manifest), pod_groups=[GROUP])
        theirs = structs.replace(known.pod_groups[0], foreign=True)
        assert not left(structs.replace(known, pod_groups=(theirs,)))


OVER = with_group(job(SUCCEEDED))
ENDED = build_ended_pod("master-0", 1)


@pytest.mark.parametrize(
    ("manifest", "groups", "pods", "deleted"),
    [
        (OVER, [{"kind": "Workload"}], [], False),
        (OVER, [GROUP], [], True),
        # The pod group still counts running pods, so its deletion must follow later to wake waiting gangs.
        (OVER, [{**GROUP, "status": {"phase": "Scheduling"}}], [], False),
        (OVER, [{**GROUP, "status": {"phase": "Running"}}], [], False),
        (OVER, [{**GROUP, "status": {"phase": "Finished"}}], [], True),
        # The phase is Failed from the first failure on, while other pods still use resources.
        (OVER, [{**GROUP, "status": {"phase": "Failed"}}], [], True),
        (OVER, [{**GROUP, "status": {"phase": "Failed"}}], [ENDED, running("worker-0")], False),
        (OVER, [{**GROUP, "status": {"phase": "Failed"}}], [ENDED, pod("worker-0", metadata={"deletionTimestamp": at(100)})], False),
        (OVER, [{**GROUP, "status": {"phase": "Failed"}}], [ENDED, pod("worker-0", "Pending", node="")], False),
        (OVER, [{**GROUP, "status": {"phase": "Failed"}}], [ENDED, build_ended_pod("worker-0", 143)], True),
        # The pod group of the operator, and that of a job that has not ended, are not deleted.
        (job(SUCCEEDED), [GROUP], [], False),
        (with_group(job(SUCCEEDED), deletionTimestamp="2026-01-01T00:00:00Z"), [GROUP], [], False),
        (with_group(job(started=None)), [GROUP], [], False),
        (None, [], [], False),
    ],
)  # fmt: skip
def test_pod_group_of_a_finished_job_is_deleted(manifest, groups, pods, deleted):
    found = cleanup.find_leftover_companions(observe(manifest, *pods, pod_groups=groups))
    assert [each["kind"] for each in found] == (["PodGroup"] if deleted else [])


def with_other_owner(manifest):
    return with_metadata(manifest, ownerReferences=[{"uid": "earlier"}])


# A job after `kfpytorch cancel`, before the operator has reacted.
CANCELLED = with_metadata(job(RUNNING), annotations={ANNOTATION: "said"})
LOOP = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}
UNDISTURBED = {
    "all run": (True, job(RUNNING), [running("worker-0")]),
    "one only holds a place": (False, job(RUNNING), [with_metadata(running("worker-0"), labels={PLACE_OF: "j", PLACE: "worker"})]),
    "one is of an earlier job": (False, job(RUNNING), [with_other_owner(running("worker-0"))]),
    "beside an earlier job's": (True, job(RUNNING), [running("worker-0"), with_other_owner(running("worker-1"))]),
    "it is over": (False, job(SUCCEEDED), [running("worker-0")]),
    "a user has ended it": (False, CANCELLED, [running("worker-0")]),
    "it is gone": (False, None, [running("worker-0")]),
    "one waits": (False, job(RUNNING), [pod("worker-0", "Pending")]),
    "one has ended": (False, job(RUNNING), [build_ended_pod("worker-0", 1)]),
    "one restarts": (False, job(RUNNING), [pod("worker-0", container=LOOP)]),
    "one is about to be taken away": (False, job(RUNNING), [pod("worker-0", conditions=[condition("DisruptionTarget")])]),
    "one is deleted": (False, job(RUNNING), [going(pod("worker-0"), 60)]),
}  # fmt: skip


@pytest.mark.parametrize(("undisturbed", "manifest", "workers"), UNDISTURBED.values(), ids=UNDISTURBED)
def test_running_job_without_disturbance_is_recognized(undisturbed, manifest, workers):
    assert is_running_undisturbed(observe(manifest, running("master-0"), *workers)) is undisturbed


@pytest.mark.parametrize(
    ("undisturbed", "what", "new"),
    [
        (True, "nothing is new", {}),
        (True, "one runs, on another node", {2: ELSEWHERE}),
        (True, "two are new, and run", {1: running("worker-0"), 2: ELSEWHERE}),
        (False, "one waits", {2: pod("worker-1", "Pending")}),
        (False, "one is an earlier job's now", {2: with_other_owner(running("worker-1"))}),
        (False, "an earlier job's, which is read completely", {3: running("worker-2")}),
        (False, "one is gone", {2: None}),
        (False, "there is one more", {4: running("worker-3")}),
    ],
)
def test_running_job_is_checked_again_by_its_changed_pods_only(undisturbed, what, new):
    workers = [running("worker-0"), running("worker-1"), with_other_owner(running("worker-2"))]
    before = observe(job(RUNNING, workers=2), running("master-0"), *workers)
    assert is_running_undisturbed(before)
    read = {index: observe(None, *([] if each is None else [each])).pods for index, each in new.items()}
    after = [pod for index in range(5) for pod in read.get(index, before.pods[index : index + 1])]
    assert is_still_undisturbed(before.job, before.pods, after) is undisturbed, what
    # The full check must agree if the incremental check returns True.
    assert is_running_undisturbed(structs.replace(before, pods=tuple(after))) or not undisturbed, what


def cancelled(first, *pods):
    todo = cleanup.plan_cancellation(observe(first, *pods), "", BEGAN + timedelta(seconds=10))
    return merge_patch(first, todo.patch)


@pytest.mark.parametrize("policy", ["None", "Running"])
def test_cancelled_job_ends_with_its_pods_which_keep_their_logs(policy):
    pods = (build_ended_pod("master-0", 0), running("worker-0"), pod("worker-1", "Pending"))
    patched = cancelled(job(RUNNING, workers=2, cleanPodPolicy=policy, backoffLimit=3), *pods)
    assert patched["spec"]["runPolicy"] == {"cleanPodPolicy": "None"}
    replicas = patched["spec"]["pytorchReplicaSpecs"].values()
    assert [each["restartPolicy"] for each in replicas] == ["Never", "Never"]
    verdict, todo = judged(observe(patched, *pods), seconds=130)
    assert (verdict.reason, names(todo.stops)) == ("Cancelled", ["j-worker-0"])
    assert (todo.pods, todo.patch, todo.ends) == ((), None, False)
    # A pod that does not end, or an operator that does not react.
    assert judged(observe(patched, *pods), seconds=131)[1] == cleanup.CleanupActions(ends=True)
    ended = merge_patch(patched, {"metadata": patched["metadata"], "spec": END})
    assert judged(observe(ended, *pods))[1] == cleanup.NONE
    patched["status"] = job(RUNNING, FAILED)["status"]
    # The first end of a pod ends the job, and the others have not ended yet.
    during = judged(observe(patched, build_ended_pod("master-0", 143), *pods[1:]), seconds=130)[1]
    assert (names(during.pods), names(during.stops)) == (["j-worker-1"], ["j-worker-0"])
    late = judged(observe(patched, build_ended_pod("master-0", 143), *pods[1:]), seconds=131)[1]
    assert (names(late.pods), late.stops) == (["j-worker-0", "j-worker-1"], ())
    both = build_ended_pod("master-0", 0), build_ended_pod("worker-0", 143)
    after = judged(observe(patched, *both, pods[2]))[1]
    assert (names(after.pods), after.stops, after.ends) == (["j-worker-1"], (), False)


def test_job_that_a_queue_resumes_after_its_end_is_ended():
    waiting = job(cleanPodPolicy="None", started=None)
    resumed = {**cancelled(waiting), "status": job(RUNNING)["status"], "spec": waiting["spec"]}
    assert judged(observe(resumed, running("worker-0")), seconds=131)[1] == cleanup.CleanupActions(ends=True)


@pytest.mark.parametrize(
    ("manifest", "each"),
    [(job(RUNNING, cleanPodPolicy="All"), running("worker-0")), (job(RUNNING), pod("worker-0", "Pending"))],
)
def test_cancelled_job_without_logs_to_keep_ends_by_a_deadline(manifest, each):
    patched = cancelled(manifest, each)
    assert patched["spec"]["runPolicy"] == END["runPolicy"]
    assert judged(observe(patched, each))[1] == cleanup.NONE
