# ruff: noqa: E501 - a row a case
"""Tests for the root cause among terminations before and after the end of a job."""

import pytest
from cluster import FAILED, RUNNING, SUCCEEDED, at, condition, job, short, verdict
from cluster_pods import TORCHRUN, build_ended_pod, error_file, going, pod, running

LEAVING = {
    "its outputs are there": ((running("master-0"),), {"outputs": True}, "SUCCEEDED"),
    "its master was done": ((build_ended_pod("master-0", 0), running("worker-0")), {}, "SUCCEEDED"),
    "its workers were done": ((build_ended_pod("worker-0", 0), build_ended_pod("worker-1", 0)), {}, "SUCCEEDED"),
    "a worker was done": ((running("master-0"), build_ended_pod("worker-0", 0)), {}, "RETRYABLE_FAILED"),
    "it left an error": ((build_ended_pod("master-0", 0),), {"outputs": True, "error_files": [error_file()]}, "FAILED"),
}  # fmt: skip


def disrupted(reason: str, since: float, status: str = "True"):
    return {"conditions": [condition("DisruptionTarget", status, since=since, reason=reason)]}


def build_event(kind: str, message: str, since: float = 95, **more):
    return {"reason": kind, "message": message, "lastTimestamp": at(since), **more}


def build_pod_event(kind: str, message: str = "", since: float = 95, name: str = "j-worker-0"):
    return build_event(kind, message, since, involvedObject={"kind": "Pod", "name": name})


def limit(**policy):
    text = "Job j has failed because it has reached the specified backoff limit"
    return job(condition("Failed", message=text), workers=2, **policy)


def restarted(name: str, code: int, reason: str = "Error", times: int = 3, **more):
    last = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at(90)}}
    state = {"running": {"startedAt": at(92)}}
    return pod(name, container={"restartCount": times, "state": state, "lastState": last}, **more)


LOST = "RuntimeError: [third_party/gloo/x] Connection closed by peer"
JOB = job(FAILED, workers=2)
RAISED = """Traceback (most recent call last):
    File "/root/train.py", line 12, in main
      raise ValueError("no data")
  ValueError: no data
  of shard 7
  """
ABORTED = build_ended_pod("master-0", 134, finished=95)

FIRST = {
    # Peers that abort without an error do not replace the error of the replica.
    "peers give up after an error": (JOB, (build_ended_pod("worker-0", 1), ABORTED), {"error_files": [error_file()]}, ("FAILED", "ValueError", "user-error"), "worker-0 failed: ValueError"),
    "a peer's end is observed before its own": (JOB, (build_ended_pod("master-0", 137, "OOMKilled", finished=95), build_ended_pod("worker-0", 1)), {"error_files": [error_file()]}, ("RETRYABLE_FAILED", "OOMKilled", "oom-host"), "master-0 failed: OOMKilled"),
    "peers give up while it is going": (JOB, (build_ended_pod("worker-0", 143, finished=99, **disrupted("PreemptionByScheduler", 80)), build_ended_pod("master-0", 1, finished=82)), {}, ("RETRYABLE_FAILED", "PreemptionByScheduler", "preempted"), "worker-0 failed: PreemptionByScheduler"),
    "evicted at an unknown time": (JOB, (pod("worker-0", "Failed", reason="Evicted"), build_ended_pod("master-0", 1, finished=82)), {}, ("RETRYABLE_FAILED", "Evicted", "system-error"), "worker-0 failed: Evicted"),
    "evicted when it stopped being ready": (JOB, (pod("worker-0", "Failed", reason="Evicted", conditions=[condition("Ready", "False", since=99)]), build_ended_pod("master-0", 1, finished=12)), {}, ("FAILED", "ExitCode", "user-error"), "master-0 failed: exit code 1"),
    "stopped, and its peers gave up": (JOB, (build_ended_pod("worker-0", 143, finished=80), ABORTED), {}, ("RETRYABLE_FAILED", "SIGTERM", "preempted"), "worker-0 failed: killed by SIGTERM"),
    "stopped in the second in which another failed": (JOB, (build_ended_pod("worker-0", 143), build_ended_pod("worker-1", 3)), {}, ("FAILED", "ExitCode", "user-error"), "worker-1 failed: exit code 3"),
    "two in one second": (job(FAILED, workers=11), (build_ended_pod("worker-10", 3), build_ended_pod("worker-2", 4)), {}, ("FAILED", "ExitCode", "user-error"), "worker-2 failed: exit code 4"),
    "the processes of torchrun were killed": (JOB, (build_ended_pod("worker-0", 1),), {"error_files": [error_file(exception=TORCHRUN.format(code=-9, trace="Signal 9 (SIGKILL) received by PID 12"))]}, ("RETRYABLE_FAILED", "SIGKILL", "oom-host"), "rank 3 (worker-0) failed: killed by SIGKILL (oom-host)"),
    "a process of torchrun raised": (JOB, (build_ended_pod("worker-0", 1),), {"error_files": [error_file(exception=TORCHRUN.format(code=1, trace=RAISED))]}, ("FAILED", "ValueError", "user-error"), "rank 3 (worker-0) failed: ValueError: no data, at /root/train.py:12 in main (user-error)"),
    "a report of a kill before the reports of its peers": (JOB, (), {"error_files": [error_file("j-worker-1", timestamp=at(88)), error_file(exception=TORCHRUN.format(code=-9, trace="Signal 9 (SIGKILL) received by PID 12"))]}, ("RETRYABLE_FAILED", "SIGKILL", "oom-host"), "rank 3 (worker-0) failed"),
    # An error file without a worker name.
    "a lost peer is not the only one to have failed": (JOB, (build_ended_pod("worker-0", 3, finished=80), build_ended_pod("master-0", 1)), {"error_files": [error_file("", exception=LOST)]}, ("FAILED", "ExitCode", "user-error"), "worker-0 failed: exit code 3"),
    "an error without a time": (JOB, (build_ended_pod("worker-0", 3),), {"error_files": [error_file("", timestamp=None)]}, ("FAILED", "ValueError", "user-error"), "worker-0 failed: ValueError"),
    "a worker named as the operator counts": (JOB, (build_ended_pod("worker-0", 1),), {"error_files": [error_file("worker-0", kind="RECOVERABLE")]}, ("RETRYABLE_FAILED", "ValueError", "user-error"), "worker-0 failed: ValueError"),
    # Terminations and deletions after the end of the job or of the replica.
    "evicted after the end": (JOB, (build_ended_pod("worker-0", 3, finished=99), build_ended_pod("master-0", 137, finished=103, reason_of_pod="Evicted")), {}, ("FAILED", "ExitCode", "user-error"), "worker-0 failed: exit code 3"),
    "its node is emptied after its end": (JOB, (build_ended_pod("worker-0", 3, finished=60, **disrupted("DeletionByTaintManager", 95)),), {}, ("FAILED", "ExitCode", "user-error"), "worker-0 failed: exit code 3"),
    "a drain that came to nothing": (JOB, (build_ended_pod("worker-0", 3, **disrupted("EvictionByEvictionAPI", 60, "False")),), {}, ("FAILED", "ExitCode", "user-error"), "worker-0 failed: exit code 3"),
    "removed after it was stopped": (job(FAILED, workers=2, cleanPodPolicy="All"), (going(build_ended_pod("worker-0", 143), 101),), {}, ("RETRYABLE_FAILED", "SIGTERM", "preempted"), "worker-0 failed: killed by SIGTERM"),
    "killed after its grace": (JOB, (going(build_ended_pod("worker-0", 137, finished=95), 65), build_ended_pod("master-0", 4, finished=99)), {}, ("FAILED", "ExitCode", "user-error"), "master-0 failed: exit code 4"),
    # An unreachable kubelet cannot report how its pods ended.
    "a lost node, in the old form": (JOB, (going(pod("worker-0", reason="NodeLost", conditions=[condition("Ready", "False", since=70)]), 95), build_ended_pod("master-0", 1, finished=75)), {}, ("RETRYABLE_FAILED", "NodeLost", "node-lost"), "worker-0 failed: NodeLost"),
    # Messages of the container runtime, and other unusual states.
    "a driver that is not there": (JOB, (build_ended_pod("worker-0", 128, "StartError", finished=90, container_message="nvml error: driver not loaded"),), {}, ("RETRYABLE_FAILED", "StartError", "system-error"), "worker-0 failed: StartError"),
    "a command that is not there": (JOB, (build_ended_pod("worker-0", 128, "StartError", finished=90, container_message="exec: executable file not found in $PATH"),), {}, ("FAILED", "StartError", "invalid-config"), "worker-0 failed: StartError"),
    "an error of an unknown form": (JOB, (), {"error_files": [error_file(message="out of luck")]}, ("FAILED", "Error", "user-error"), "worker-0 failed: Error: out of luck"),
    "beside a container that ended well": (JOB, (build_ended_pod("worker-0", 3, containerStatuses=[{"name": "side", "state": {"terminated": {"exitCode": 0}}}, {"name": "pytorch", "state": {"terminated": {"exitCode": 5}}}]),), {}, ("FAILED", "ExitCode", "user-error"), "worker-0 failed: exit code 5 (user-error)"),
    "about to be taken away": (JOB, (pod("worker-0", **disrupted("PreemptionByScheduler", 80)), ABORTED), {}, ("RETRYABLE_FAILED", "PreemptionByScheduler", "preempted"), "worker-0 failed: PreemptionByScheduler"),
    "an error without a time, of one that was restarted once": (JOB, (build_ended_pod("worker-0", 1, containerStatuses=[{"name": "pytorch", "restartCount": 1, "state": {"terminated": {"exitCode": 1}}}]),), {"error_files": [error_file(timestamp=None)]}, ("FAILED", "ValueError", "user-error"), "worker-0 failed: ValueError"),
    "evicted by its kubelet": (JOB, (pod("worker-0", "Failed", reason="Evicted", message="low", **disrupted("TerminationByKubelet", 80)), ABORTED), {}, ("RETRYABLE_FAILED", "Evicted", "system-error"), "worker-0 failed: Evicted: low"),
    # Errors from which a worker was restarted.
    "an error of an earlier incarnation": (JOB, (restarted("worker-0", 1, times=1), build_ended_pod("master-0", 137, "OOMKilled", finished=99)), {"error_files": [error_file(timestamp=at(20))]}, ("RETRYABLE_FAILED", "OOMKilled", "oom-host"), "master-0 failed: OOMKilled"),
    "stopped, restarted once before": (JOB, (build_ended_pod("worker-0", 143, containerStatuses=[{"name": "pytorch", "restartCount": 1, "state": {"terminated": {"exitCode": 143, "finishedAt": at(90)}}, "lastState": {"terminated": {"exitCode": 1, "finishedAt": at(30)}}}]),), {}, ("RETRYABLE_FAILED", "SIGTERM", "preempted"), "worker-0 failed: killed by SIGTERM"),
    "ran too long, restarted once before": (job(condition("Failed", message="Job j has failed because it was active longer than specified deadline")), (going(restarted("worker-0", 1, times=1), 101),), {"error_files": [error_file(timestamp=at(20))]}, ("FAILED", "DeadlineExceeded", "user-error"), "it ran for longer than its deadline allows"),
    "restarted too often, and still there": (limit(), (running("master-0"), restarted("worker-0", 3), restarted("worker-1", 137, "OOMKilled", times=1)), {}, ("FAILED", "ExitCode", "user-error"), "worker-0 failed: restarted 3 times, after exit code 3"),
    "restarted too often, and removed": (limit(), (going(restarted("worker-0", 137, "OOMKilled"), 100), restarted("worker-1", 0, times=9)), {}, ("RETRYABLE_FAILED", "OOMKilled", "oom-host"), "worker-0 failed: restarted 3 times, after OOMKilled"),
    "restarted too often, words of an earlier one": (limit(), (restarted("worker-0", 137, "OOMKilled"),), {"error_files": [error_file(timestamp=at(9))]}, ("RETRYABLE_FAILED", "OOMKilled", "oom-host"), "worker-0 failed: restarted 3 times"),
    "restarted too often, with words": (limit(), (restarted("worker-0", 1),), {"error_files": [error_file()]}, ("FAILED", "ValueError", "user-error"), "worker-0 failed: ValueError"),
    # Pods that do not exist any more.
    "the last words of a restarted container": (limit(), (), {"events": [build_event("OOMKilled", "Error pod j-worker-0 container pytorch exitCode: 137 terminated message: ")]}, ("RETRYABLE_FAILED", "OOMKilled", "oom-host"), "worker-0 failed: OOMKilled, killed by SIGKILL"),
    "an exit long before the end": (JOB, (), {"events": [build_event("ExitedWithCode", "Pod: ns.j-worker-0 exited with code 137", 30), build_event("ExitedWithCode", "Pod: ns.j-worker-1 exited with code 3", 99)]}, ("FAILED", "ExitCode", "user-error"), "worker-1 failed: exit code 3"),
    "two exits of one": (JOB, (), {"events": [build_event("ExitedWithCode", "Pod: ns.j-worker-0 exited with code 3", 97), build_event("ExitedWithCode", "Pod: ns.j-worker-0 exited with code 137", 60)]}, ("FAILED", "ExitCode", "user-error"), "worker-0 failed: exit code 3"),
    "preempted, and gone": (JOB, (ABORTED,), {"events": [build_pod_event("Preempted", "Preempted by pod x on node n1", 80)]}, ("RETRYABLE_FAILED", "Preempted", "preempted"), "worker-0 failed: Preempted: Preempted by pod x"),
    "its node was lost, and it is gone": (JOB, (ABORTED,), {"events": [build_pod_event("TaintManagerEviction", since=80)]}, ("RETRYABLE_FAILED", "TaintManagerEviction", "node-lost"), "worker-0 failed: TaintManagerEviction (node-lost)"),
    "its node came back": (JOB, (ABORTED,), {"events": [build_pod_event("TaintManagerEviction", "Cancelling deletion of Pod ns/j-worker-0", 80), build_pod_event("Started")]}, ("FAILED", "SIGABRT", "user-error"), "master-0 failed: killed by SIGABRT"),
}  # fmt: skip


@pytest.mark.parametrize(("job", "pods", "more", "expected", "line"), FIRST.values(), ids=FIRST)
def test_root_cause_is_the_first_of_many_terminations(job, pods, more, expected, line):
    for order in (1, -1):
        mixed = {key: list(values[::order]) for key, values in more.items()}
        answer = verdict(job, *pods[::order], **mixed, now=150)
        assert short(answer) == expected
        assert answer.message.startswith(line)


DONE = build_event("PyTorchJobSucceeded", "PyTorchJob j is successfully completed.")
TOO_LONG = "Job j has failed because it was active longer than specified deadline"
OVER = build_event("PyTorchJobFailed", TOO_LONG)
KILLED = build_event("ExitedWithCode", "Pod: ns.j-worker-0 exited with code 137")
GONE = {
    "its operator reported success": ((), {"events": [DONE]}, ("SUCCEEDED", "Succeeded", None)),
    "its operator reported it, and there are no outputs": ((), {"events": [DONE], "outputs": False}, ("RETRYABLE_FAILED", "JobNotFound", "system-error")),
    "its operator reported failure": ((), {"events": [OVER, build_event("PyTorchJobFailed", "m", 80)]}, ("FAILED", "DeadlineExceeded", "user-error")),
    "it restarted once, and was done": ((), {"events": [KILLED], "outputs": True}, ("SUCCEEDED", "Succeeded", None)),
    "its pods end after it": ((build_ended_pod("worker-0", 1, finished=99),), {"outputs": True}, ("SUCCEEDED", "Succeeded", None)),
    "its pods are stopped with it": ((going(build_ended_pod("worker-0", 1, finished=99), 98),), {}, ("RETRYABLE_FAILED", "JobNotFound", "system-error")),
    "its pods had been restarted once": ((going(restarted("worker-0", 1, times=1), 98),), {}, ("RETRYABLE_FAILED", "JobNotFound", "system-error")),
}  # fmt: skip


@pytest.mark.parametrize(("pods", "more", "expected"), GONE.values(), ids=GONE)
def test_deleted_job_is_judged_by_its_pods(pods, more, expected):
    assert short(verdict(None, *pods, **more)) == expected


@pytest.mark.parametrize(("pods", "more", "phase"), LEAVING.values(), ids=LEAVING)
def test_job_that_is_being_deleted_is_judged_like_a_deleted_one(pods, more, phase):
    leaving = job(RUNNING)
    leaving["metadata"]["deletionTimestamp"] = at(101)
    assert [verdict(each, *pods, **more).phase.value for each in (leaving, None)] == [phase, phase]


def restarting(*conditions, clean: str = "All", kind: str = "Master", **elastic):
    made = job(*conditions, workers=2, cleanPodPolicy=clean)
    specs = made["spec"]["pytorchReplicaSpecs"]
    roles = specs if kind == "Master" else ["Worker"]
    restarted = {role: {**specs[role], "restartPolicy": "OnFailure"} for role in roles}
    made["spec"] |= {"pytorchReplicaSpecs": restarted, **elastic}
    return made


DONE_AT_LAST = {"terminated": {"exitCode": 0, "startedAt": at(92), "finishedAt": at(99)}}
ANEW = {"container": {"restartCount": 1, "state": DONE_AT_LAST}}
CLEANED = {
    "a worker that ended well is being cleaned up": (restarting(SUCCEEDED), (going(pod("worker-0", "Succeeded", **ANEW), 101),), error_file(), "SUCCEEDED"),
    "a worker that ended with zero when it was stopped": (restarting(SUCCEEDED), (going(pod("worker-0", "Succeeded", **ANEW), 95),), error_file(), "FAILED"),
    "everything has been cleaned up": (restarting(SUCCEEDED), (), error_file(), "SUCCEEDED"),
    "what still ran has been cleaned up": (restarting(SUCCEEDED, clean="Running"), (), error_file(), "FAILED"),
    "a master that must have ended well": (restarting(SUCCEEDED, clean="Running"), (), error_file("j-master-0"), "SUCCEEDED"),
    "workers that must have ended well": (restarting(SUCCEEDED, clean="Running", kind="Worker"), (), error_file(), "SUCCEEDED"),
    "elastic workers with a minimum of one": (restarting(SUCCEEDED, clean="Running", kind="Worker", elasticPolicy={"minReplicas": 1}), (), error_file(), "FAILED"),
    "too late to have been started anew": (restarting(SUCCEEDED), (), error_file(timestamp=at(96)), "FAILED"),
    "a worker that is not restarted": (job(SUCCEEDED, cleanPodPolicy="All"), (), error_file(), "FAILED"),
}  # fmt: skip


@pytest.mark.parametrize(("job", "pods", "file", "phase"), CLEANED.values(), ids=CLEANED)
def test_error_file_of_a_recovered_worker_is_judged_after_pod_cleanup(job, pods, file, phase):
    assert verdict(job, *pods, error_files=[file]).phase.value == phase


def test_success_is_kept_after_an_eviction():
    evicted = pod("worker-0", "Failed", reason="Evicted")
    assert short(verdict(job(RUNNING, SUCCEEDED), evicted)) == ("SUCCEEDED", "Succeeded", None)


LOST_PEER = error_file("j-master-0", LOST, timestamp=at(98))
ALL = job(FAILED, workers=1, cleanPodPolicy="All")
PEER = ("RETRYABLE_FAILED", "RuntimeError", "system-error")
EXIT = ("FAILED", "ExitCode", "user-error")
ERROR = ("FAILED", "ValueError", "user-error")
OOM = ("RETRYABLE_FAILED", "OOMKilled", "oom-host")
UNTOLD = ("RETRYABLE_FAILED", "PyTorchJobFailed", "system-error")
PEER_ENDED = build_ended_pod("master-0", 1, finished=98)
DEADLINE = condition("Failed", message=TOO_LONG)


def signalled(exception: str):
    return error_file(exception=exception, timestamp=at(104))


CASES = {
    # The clock of the first replica is ahead.
    "right": (JOB, (build_ended_pod("worker-0", 3, finished=96),), (LOST_PEER,), EXIT, "worker-0 failed: exit code 3"),
    "minutes": (JOB, (build_ended_pod("worker-0", 3, finished=400),), (LOST_PEER,), EXIT, "worker-0 failed: exit code 3"),
    "the peer's pod is there": (JOB, (PEER_ENDED, build_ended_pod("worker-0", 3, finished=105)), (LOST_PEER,), EXIT, "worker-0 failed: exit code 3"),
    "an error minutes ahead": (JOB, (), (LOST_PEER, error_file(timestamp=at(400))), ERROR, "worker-0 failed: ValueError"),
    "host memory minutes ahead": (JOB, (build_ended_pod("worker-0", 137, "OOMKilled", finished=400),), (LOST_PEER,), OOM, "worker-0 failed: OOMKilled"),
    "both clocks are ahead": (JOB, (), ({**LOST_PEER, "error": {**LOST_PEER["error"], "timestamp": at(390)}}, error_file(timestamp=at(400))), ERROR, "worker-0 failed: ValueError"),
    "before those that got SIGTERM": (JOB, (going(build_ended_pod("master-0", 143, finished=101)), build_ended_pod("worker-0", 3, finished=105)), (), EXIT, "worker-0 failed: exit code 3"),
    # The operator deletes all pods, including the one that ended the job.
    "all are cleaned up": (ALL, (going(build_ended_pod("worker-0", 3, finished=396)), going(build_ended_pod("master-0", 143, finished=101))), (), EXIT, "worker-0 failed: exit code 3"),
    "all are cleaned up, and one lost its peer": (ALL, (going(build_ended_pod("worker-0", 3, finished=396)), going(PEER_ENDED)), (LOST_PEER,), EXIT, "worker-0 failed: exit code 3"),
    "all are cleaned up, and one has written why": (ALL, (going(build_ended_pod("worker-0", 1, finished=396)), going(PEER_ENDED)), (LOST_PEER, error_file(timestamp=at(395))), ERROR, "worker-0 failed: ValueError"),
    "all are cleaned up, and one had no memory": (ALL, (going(build_ended_pod("worker-0", 137, "OOMKilled", finished=396)), going(PEER_ENDED)), (LOST_PEER,), OOM, "worker-0 failed: OOMKilled"),
    "all are cleaned up, and one crashed": (ALL, (going(build_ended_pod("worker-0", 139, finished=396)), going(running("master-0"))), (), ("FAILED", "SIGSEGV", "user-error"), "worker-0 failed: killed by SIGSEGV"),
    # The termination was late.
    "another was first": (JOB, (build_ended_pod("worker-1", 3, finished=97), build_ended_pod("worker-0", 4, finished=105)), (LOST_PEER,), EXIT, "worker-1 failed: exit code 3"),
    "another wrote first": (JOB, (build_ended_pod("worker-0", 4, finished=105),), (LOST_PEER, error_file("j-worker-1", timestamp=at(97))), ERROR, "worker-1 failed: ValueError"),
    "its connection was lost, and another was first": (JOB, (build_ended_pod("worker-1", 3, finished=97),), (error_file(exception="DistNetworkError: Connection reset by peer", timestamp=at(300)),), EXIT, "worker-1 failed: exit code 3"),
    "its connection was lost, too": (JOB, (), (LOST_PEER, error_file(exception="DistNetworkError: Connection reset by peer", timestamp=at(300))), PEER, "master-0 failed: RuntimeError"),
    "it got SIGTERM": (JOB, (going(build_ended_pod("worker-0", 143, finished=105)),), (LOST_PEER,), PEER, "master-0 failed: RuntimeError"),
    "it got SIGTERM from an unknown sender": (JOB, (build_ended_pod("worker-0", 143, finished=105),), (LOST_PEER,), PEER, "master-0 failed: RuntimeError"),
    "it got SIGTERM, and ended with another code": (JOB, (going(build_ended_pod("worker-0", 1, finished=105)),), (LOST_PEER,), PEER, "master-0 failed: RuntimeError"),
    "it got SIGTERM, and wrote so": (JOB, (), (LOST_PEER, signalled("SignalException: Process 12 got signal: 15")), PEER, "master-0 failed: RuntimeError"),
    "its loader got SIGTERM, and it wrote so": (JOB, (), (LOST_PEER, signalled("RuntimeError: DataLoader worker (pid 4) is killed by signal: Terminated.")), PEER, "master-0 failed: RuntimeError"),
    "it got SIGTERM, and wrote something": (JOB, (going(running("worker-0")),), (LOST_PEER, signalled("ValueError: half a batch")), PEER, "master-0 failed: RuntimeError"),
    "its watchdog gave up": (JOB, (build_ended_pod("worker-0", 134, finished=105),), (LOST_PEER,), PEER, "master-0 failed: RuntimeError"),
    # The remaining pods are deleted, and a missing pod may be the root cause.
    "one is gone": (ALL, (going(build_ended_pod("worker-0", 1, finished=105)),), (), UNTOLD, "the job failed"),
    "only those that still ran": (job(FAILED, cleanPodPolicy="Running"), (going(build_ended_pod("worker-0", 1, finished=105)), going(build_ended_pod("master-0", 143, finished=105))), (), UNTOLD, "the job failed"),
    "none ended by itself": (ALL, (going(build_ended_pod("worker-0", 134, finished=105)), going(build_ended_pod("master-0", 143, finished=105))), (), UNTOLD, "the job failed"),
    "it ran too long": (job(DEADLINE, cleanPodPolicy="All"), (going(build_ended_pod("worker-0", 1, finished=105)), going(build_ended_pod("master-0", 143, finished=105))), (), ("FAILED", "DeadlineExceeded", "user-error"), "it ran for longer"),
}  # fmt: skip


@pytest.mark.parametrize(("job", "pods", "files", "expected", "line"), CASES.values(), ids=CASES)
def test_root_cause_is_the_first_termination_despite_a_fast_clock(job, pods, files, expected, line):
    for order in (1, -1):
        answer = verdict(job, *pods[::order], error_files=list(files[::order]), now=500)
        assert short(answer) == expected
        assert answer.message.startswith(line)
