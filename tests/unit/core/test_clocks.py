# ruff: noqa: E501 - a row a case
"""Tests for the root cause if the clock of a Kubernetes node is ahead."""

import pytest
from cluster import FAILED, at, build_ended_pod, condition, error_file, going, job, running, short, verdict

LOST = error_file(
    "j-master-0", "RuntimeError: [third_party/gloo/x] Connection closed by peer", timestamp=at(98)
)
JOB = job(FAILED, workers=2)
ALL = job(FAILED, workers=1, cleanPodPolicy="All")
PEER = ("RETRYABLE_FAILED", "RuntimeError", "system-error")
EXIT = ("FAILED", "ExitCode", "user-error")
ERROR = ("FAILED", "ValueError", "user-error")
OOM = ("RETRYABLE_FAILED", "OOMKilled", "oom-host")
UNTOLD = ("RETRYABLE_FAILED", "PyTorchJobFailed", "system-error")


PEER_ENDED = build_ended_pod("master-0", 1, finished=98)
AHEAD = {
    "right": (JOB, (build_ended_pod("worker-0", 3, finished=96),), (LOST,), EXIT, "worker-0 failed: exit code 3"),
    "seconds": (JOB, (build_ended_pod("worker-0", 3, finished=105),), (LOST,), EXIT, "worker-0 failed: exit code 3"),
    "minutes": (JOB, (build_ended_pod("worker-0", 3, finished=400),), (LOST,), EXIT, "worker-0 failed: exit code 3"),
    "the peer's pod is there": (JOB, (PEER_ENDED, build_ended_pod("worker-0", 3, finished=105)), (LOST,), EXIT, "worker-0 failed: exit code 3"),
    "an error minutes ahead": (JOB, (), (LOST, error_file(timestamp=at(400))), ERROR, "worker-0 failed: ValueError"),
    "host memory minutes ahead": (JOB, (build_ended_pod("worker-0", 137, "OOMKilled", finished=400),), (LOST,), OOM, "worker-0 failed: OOMKilled"),
    "both clocks are ahead": (JOB, (), ({**LOST, "error": {**LOST["error"], "timestamp": at(390)}}, error_file(timestamp=at(400))), ERROR, "worker-0 failed: ValueError"),
    "before those that got SIGTERM": (JOB, (going(build_ended_pod("master-0", 143, finished=101)), build_ended_pod("worker-0", 3, finished=105)), (), EXIT, "worker-0 failed: exit code 3"),
    # The operator deletes all pods, including the one that ended the job.
    "all are cleaned up": (ALL, (going(build_ended_pod("worker-0", 3, finished=396)), going(build_ended_pod("master-0", 143, finished=101))), (), EXIT, "worker-0 failed: exit code 3"),
    "all are cleaned up, and one lost its peer": (ALL, (going(build_ended_pod("worker-0", 3, finished=396)), going(PEER_ENDED)), (LOST,), EXIT, "worker-0 failed: exit code 3"),
    "all are cleaned up, and one has written why": (ALL, (going(build_ended_pod("worker-0", 1, finished=396)), going(PEER_ENDED)), (LOST, error_file(timestamp=at(395))), ERROR, "worker-0 failed: ValueError"),
    "all are cleaned up, and one had no memory": (ALL, (going(build_ended_pod("worker-0", 137, "OOMKilled", finished=396)), going(PEER_ENDED)), (LOST,), OOM, "worker-0 failed: OOMKilled"),
    "all are cleaned up, and one crashed": (ALL, (going(build_ended_pod("worker-0", 139, finished=396)), going(running("master-0"))), (), ("FAILED", "SIGSEGV", "user-error"), "worker-0 failed: killed by SIGSEGV"),
}  # fmt: skip


def signalled(exception: str):
    return error_file(exception=exception, timestamp=at(104))


DEADLINE = condition(
    "Failed", message="Job j has failed because it was active longer than specified deadline"
)
LATE = {
    "another was first": (JOB, (build_ended_pod("worker-1", 3, finished=97), build_ended_pod("worker-0", 4, finished=105)), (LOST,), EXIT, "worker-1 failed: exit code 3"),
    "another was first, and had no memory": (JOB, (build_ended_pod("worker-1", 137, "OOMKilled", finished=97), build_ended_pod("worker-0", 4, finished=105)), (LOST,), OOM, "worker-1 failed: OOMKilled"),
    "another wrote first": (JOB, (build_ended_pod("worker-0", 4, finished=105),), (LOST, error_file("j-worker-1", timestamp=at(97))), ERROR, "worker-1 failed: ValueError"),
    "its connection was lost, and another was first": (JOB, (build_ended_pod("worker-1", 3, finished=97),), (error_file(exception="DistNetworkError: Connection reset by peer", timestamp=at(300)),), EXIT, "worker-1 failed: exit code 3"),
    "its connection was lost, too": (JOB, (), (LOST, error_file(exception="DistNetworkError: Connection reset by peer", timestamp=at(300))), PEER, "master-0 failed: RuntimeError"),
    "it got SIGTERM": (JOB, (going(build_ended_pod("worker-0", 143, finished=105)),), (LOST,), PEER, "master-0 failed: RuntimeError"),
    "it got SIGTERM from an unknown sender": (JOB, (build_ended_pod("worker-0", 143, finished=105),), (LOST,), PEER, "master-0 failed: RuntimeError"),
    "it was killed after its grace": (JOB, (going(build_ended_pod("worker-0", 137, finished=130)),), (LOST,), PEER, "master-0 failed: RuntimeError"),
    "it got SIGTERM, and ended with another code": (JOB, (going(build_ended_pod("worker-0", 1, finished=105)),), (LOST,), PEER, "master-0 failed: RuntimeError"),
    "it got SIGTERM, and wrote so": (JOB, (), (LOST, signalled("SignalException: Process 12 got signal: 15")), PEER, "master-0 failed: RuntimeError"),
    "its loader got SIGTERM, and it wrote so": (JOB, (), (LOST, signalled("RuntimeError: DataLoader worker (pid 4) is killed by signal: Terminated.")), PEER, "master-0 failed: RuntimeError"),
    "it got SIGTERM, and wrote something": (JOB, (going(running("worker-0")),), (LOST, signalled("ValueError: half a batch")), PEER, "master-0 failed: RuntimeError"),
    "its watchdog gave up": (JOB, (build_ended_pod("worker-0", 134, finished=105),), (LOST,), PEER, "master-0 failed: RuntimeError"),
    # The remaining pods are deleted, and a missing pod may be the root cause.
    "one is gone": (ALL, (going(build_ended_pod("worker-0", 1, finished=105)),), (), UNTOLD, "the job failed"),
    "only those that still ran": (job(FAILED, cleanPodPolicy="Running"), (going(build_ended_pod("worker-0", 1, finished=105)), going(build_ended_pod("master-0", 143, finished=105))), (), UNTOLD, "the job failed"),
    "none ended by itself": (ALL, (going(build_ended_pod("worker-0", 134, finished=105)), going(build_ended_pod("master-0", 143, finished=105))), (), UNTOLD, "the job failed"),
    "another was first, and all are cleaned up": (ALL, (going(build_ended_pod("worker-0", 1, finished=105)), going(build_ended_pod("master-0", 3, finished=97))), (), EXIT, "master-0 failed: exit code 3"),
    "it ran too long": (job(DEADLINE, cleanPodPolicy="All"), (going(build_ended_pod("worker-0", 1, finished=105)), going(build_ended_pod("master-0", 143, finished=105))), (), ("FAILED", "DeadlineExceeded", "user-error"), "it ran for longer"),
}  # fmt: skip


CASES = {**AHEAD, **LATE}


@pytest.mark.parametrize(("job", "pods", "files", "expected", "line"), CASES.values(), ids=CASES)
def test_root_cause_is_the_first_termination_despite_a_fast_clock(job, pods, files, expected, line):
    for order in (1, -1):
        answer = verdict(job, *pods[::order], error_files=list(files[::order]), now=500)
        assert short(answer) == expected
        assert answer.message.startswith(line)
