# ruff: noqa: E501 - a row a case
"""Tests for the root cause, the error files that count, and the resulting messages."""

import textwrap

import pytest
from cluster import BEGAN, FAILED, SUCCEEDED, at, condition, job, observe, short, verdict
from cluster_pods import TORCHRUN, build_ended_pod, error_file, pod, running, with_metadata

from backend_plugin.core.judging import verdict_annotation
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.verdict import build_failure
from backend_plugin.core.pipeline import has_unobserved_termination
from backend_plugin.core.settings.judging import JudgingSettings
from kfpytorch_common.causes import Cause

ENDED_WELL = {"terminated": {"exitCode": 0, "startedAt": at(95), "finishedAt": at(99)}}
AGAIN = {"state": ENDED_WELL, "restartCount": 1}
ALIVE = {"state": {"running": {"startedAt": at(95)}}, "restartCount": 1}
LATER = {"metadata": {"creationTimestamp": at(92)}}
DONE = build_ended_pod("worker-0", 0)
COUNTING = {
    "none ended after it": (build_ended_pod("master-0", 0), {}, 120, "FAILED"),
    "it ended with zero itself": (DONE, {}, 120, "FAILED"),
    "its container ended well at last": (pod("worker-0", "Succeeded", container=AGAIN), {}, 120, "SUCCEEDED"),
    "its pod was made anew and ended well": (pod("worker-0", "Succeeded", **LATER), {}, 120, "SUCCEEDED"),
    "it lives again": (pod("worker-0", container=ALIVE), {}, 120, "RUNNING"),
    "it has lived again for too long": (pod("worker-0", container=ALIVE), {}, 161, "FAILED"),
    "it was to live again, and is removed": (pod("worker-0", container=ALIVE, metadata={"deletionTimestamp": at(99)}), {}, 120, "FAILED"),
    "it has no worker, and one ended well": (DONE, {"worker": ""}, 120, "FAILED"),
    "it has no worker, and all ended well later": (pod("worker-0", "Succeeded", **LATER), {"worker": ""}, 120, "SUCCEEDED"),
    "it has no time": (DONE, {"timestamp": None}, 120, "FAILED"),
    "it has no time, and its container was restarted": (pod("worker-0", "Succeeded", container=AGAIN), {"timestamp": None}, 120, "SUCCEEDED"),
}  # fmt: skip
GOING = {"metadata": {"deletionTimestamp": at(99)}}
FRAME = '  File "{}", line {}, in {}\n    code\n'
CAUSE = "The above exception was the direct cause of the following exception"
HANDLING = "During handling of the above exception, another exception occurred"
LABEL = "Traceback (most recent call last):\n" + FRAME.format("/root/data.py", 3, "read") + "KeyError: 'cat'"
LOST = "RuntimeError: [/pytorch/third_party/gloo/pair.cc:561] Connection closed by peer [10.0.0.1]:1"
LOST_PEER = error_file("j-master-0", "RuntimeError: [third_party/gloo/x] Connection closed by peer")
RUN = (running("master-0"), running("worker-0"))
RAISED = 'Traceback (most recent call last):\n  File "/app/s3.py", line 9, in download\n    read()\nNotFound: no bucket'


@pytest.mark.parametrize(("worker", "file", "now", "phase"), COUNTING.values(), ids=COUNTING)
def test_error_file_counts_unless_a_later_incarnation_succeeded(worker, file, now, phase):
    master = [] if worker["metadata"]["name"] == "j-master-0" else [pod("master-0", "Succeeded", **LATER)]
    result = verdict(job(SUCCEEDED), worker, *master, error_files=[error_file(**file)], now=now)
    assert result.phase.value == phase
    remark = "the job has succeeded, but a replica wrote this error and did not recover"
    assert (remark in result.message) is (phase == "FAILED")


def reported(text):
    exception = f"ReplicaFailed: ✗ t failed on rank 1 (node 0) after 3.1 s {text}"
    return (build_ended_pod("worker-0", 1),), [error_file(exception=exception)]


def ended(name, code):
    return {"name": name, "state": {"terminated": {"exitCode": code}}}


OURS = 'File "/src/flytekitplugins/kfpytorch/worker/local_run.py", line 266, in _outcome\n    raise\n'
USER = ("FAILED", "ExitCode", "user-error")
SINGLE = {
    "packages that cannot be installed": ((build_ended_pod("worker-0", 78, container_message="kfpytorch: packages cannot be installed: no match for x"),), [], ("FAILED", "ExitCode", "invalid-config"), "worker-0 failed: packages cannot be installed: no match for x"),
    "an error after a peer was stopped": ((build_ended_pod("worker-0", 143, finished=1),), [error_file("j-master-0")], ("FAILED", "ValueError", "user-error"), "master-0 failed: ValueError: no data"),
    "a sidecar": ((pod("worker-0", "Failed", containerStatuses=[ended("pytorch", 0), ended("side", 2)]),), [], USER, "worker-0 failed: exit code 2 in container side (user-error)"),
    "an init container of the operator": ((pod("worker-0", "Failed", initContainerStatuses=[ended("init-pytorch", 1)]),), [], ("RETRYABLE_FAILED", "ExitCode", "system-error"), "worker-0 failed: exit code 1 in init container init-pytorch (system-error)"),
    "an init container of the task": ((pod("worker-0", "Failed", initContainerStatuses=[ended("copy", 1)]),), [], USER, "worker-0 failed: exit code 1 in init container copy (user-error)"),
    "a foreign pod of the same name": ((build_ended_pod("worker-0", 3, metadata={"ownerReferences": [{"uid": "other"}]}),), [], ("RETRYABLE_FAILED", "PyTorchJobFailed", "system-error"), "the job failed"),
    "a report of a killed rank": (*reported("(oom-host)\n  killed by SIGKILL (process 7)"), ("RETRYABLE_FAILED", "SIGKILL", "oom-host"), "rank 1 (worker-0) failed: killed by SIGKILL"),
    "a report of a rank that exited": (*reported("(user-error)\n  exit code 3, without a message"), USER, "rank 1 (worker-0) failed: exit code 3"),
    "a report of one line": (*reported("(user-error): ValueError"), ("FAILED", "Error", "user-error"), "rank"),
    # Frames of this package are skipped also outside an installed package.
    "a report below our frames": ((build_ended_pod("worker-0", 1),), [error_file(exception=f"{OURS}ReplicaFailed: ✗ t failed on rank 13 (node 1) after 3.1 s (oom-gpu)\n  OutOfMemoryError: CUDA out of memory\n  at train.py:7 in main")], ("RETRYABLE_FAILED", "OutOfMemoryError", "oom-gpu"), "rank 13 (worker-0) failed: OutOfMemoryError: CUDA out of memory, at /root/train.py:7 in train (oom-gpu)"),
}  # fmt: skip


@pytest.mark.parametrize(("pods", "files", "expected", "line"), SINGLE.values(), ids=SINGLE)
def test_single_failure_has_its_own_cause_and_message(pods, files, expected, line):
    result = verdict(job(FAILED), *pods, error_files=files)
    assert short(result) == expected
    assert result.message.startswith(line)


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (f"{RAISED}\n\nContext:\n   uri\n   a\n   b\n   c", "NotFound: no bucket|   uri|   a|   b|   c"),
        (RAISED, RAISED.replace("\n", "|")),
        ("1\n2\n3\n4\n5\n6", "2|3|4|5|6"),
    ],
    ids=["long exception", "short exception", "no exception"],
)
def test_end_of_the_output_contains_the_line_of_the_exception(output, shown):
    result = verdict(job(FAILED), build_ended_pod("worker-0", 1, container_message=output))
    lines = [line.removeprefix("  ") for line in result.message.splitlines() if line.startswith("  ")]
    assert "|".join(lines) == shown


def test_message_is_limited_in_length_and_printable():
    file = error_file(exception="ValueError: " + "\x1b[31mx\ud800" * 3_000)
    result = verdict(job(FAILED), error_files=[file])
    assert len(result.message) <= 1_000
    assert result.message.encode().startswith(b"worker-0 failed: ValueError: ")


def test_pod_status_may_arrive_after_the_job_status():
    pods = (running("master-0"), running("worker-0"))
    assert verdict(job(FAILED), *pods, now=102).phase.value == "RUNNING"
    untold = ("RETRYABLE_FAILED", "PyTorchJobFailed", "system-error")
    assert short(verdict(job(FAILED), *pods, now=106)) == untold


def test_failed_job_does_not_wait_for_the_status_of_deleted_pods():
    for gone in ((), (pod("worker-0", **GOING),)):
        result = verdict(job(FAILED, cleanPodPolicy="All"), running("master-0"), *gone, now=101)
        assert result.phase.value == "RETRYABLE_FAILED"


ODD = {
    "a node that ends": (job(FAILED), (pod("worker-0", "Failed", conditions=[condition("DisruptionTarget", reason="TerminationByKubelet")]),), (), "worker-0 failed: TerminationByKubelet (node-lost)"),
    "no room on its node": (job(FAILED), (pod("worker-0", "Failed", reason="OutOfnvidia.com/gpu"),), (), "worker-0 failed: OutOfnvidia.com/gpu (system-error)"),
    "nobody says why": (job(FAILED), (pod("worker-0", "Failed"),), (), "worker-0 failed: it failed, and the cluster reports no reason (system-error)"),
    "removed after its success": (job(FAILED), (pod("worker-0", "Succeeded", **GOING),), (), "the job failed, and the pods that could show the reason no longer exist"),
    "removed by the operator": (job(FAILED, cleanPodPolicy="Running"), (pod("worker-0", metadata={"deletionTimestamp": at(100)}),), (), "the job failed, and the pods that could show the reason no longer exist"),
    "an exit without a code": (job(FAILED), (), ("Pod: ns.j-worker-0 exited with code 48879",), "worker-0 failed: exit code 48879 (system-error)"),
    "an exit by a signal": (job(FAILED), (), ("Pod: ns.j-worker-0 exited with code 139",), "worker-0 failed: killed by SIGSEGV (exit code 139) (user-error)"),
}  # fmt: skip


@pytest.mark.parametrize(("job", "pods", "messages", "line"), ODD.values(), ids=ODD)
def test_uninformative_terminations_have_a_message(job, pods, messages, line):
    events = [{"reason": "ExitedWithCode", "message": each} for each in messages] + [{"reason": "Other"}]
    assert verdict(job, *pods, events=events).message.splitlines()[0] == line


def judge_error_file(message, trace=""):
    parts = (textwrap.indent(part, "    ") for part in (trace, message))
    text = "Trace:\n\n{}\nMessage:\n\n{}".format(*parts)
    return verdict(job(FAILED), build_ended_pod("worker-0", 1), error_files=[error_file(message=text)])


def test_first_line_of_a_report_contains_the_code_location():
    report = (
        "✗ train.main failed on rank 13 (node 1) after 3.1 s (user-error): ValueError at train.py:7 in main\n"
        "  ValueError: no label\n  in shard 7\n  caused by KeyError: 'cat', at data.py:3 in read\n"
        "    ❱ raise ValueError\n    train.py:3 in f\n  others rank 1 waited in barrier at train.py:9 in main"
    )
    assert judge_error_file(f"ReplicaFailed: {report}").message.splitlines() == [
        "rank 13 (worker-0) failed: ValueError: no label, at train.py:7 in main (user-error)",
        "  in shard 7",
        "  caused by KeyError: 'cat', at data.py:3 in read",
        "another attempt would fail the same way",
    ]


@pytest.mark.parametrize(("joint", "how"), [(CAUSE, "caused by"), (HANDLING, "raised while handling")])
def test_error_has_a_line_for_the_preceding_exception(joint, how):
    raised = f"Traceback (most recent call last):\n{FRAME.format('/a.py', 7, 'f')}ValueError: x"
    lines = judge_error_file("ValueError: x", f"{LABEL}\n\n{joint}:\n\n{raised}").message.splitlines()
    assert lines[1] == f"  {how} KeyError: 'cat', at /root/data.py:3 in read"


def test_library_frame_is_not_reported_as_the_code_location():
    library = "Traceback (most recent call last):\n" + FRAME.format("/usr/lib/python3/socket.py", 3, "read")
    trace = f"{library}TimeoutError\n\n{CAUSE}:\n\n{LABEL}"
    assert judge_error_file("KeyError: 'cat'", trace).message.splitlines()[1] == "  caused by TimeoutError"


def test_data_loader_error_is_attributed_to_the_dataset():
    inner = "Traceback (most recent call last):\n" + FRAME.format("/root/data.py", 9, "__getitem__")
    cause = f"{LABEL}\n\n{CAUSE}:\n\n"
    message = (
        "ValueError: Caught ValueError in DataLoader worker process 1.\n"
        f"Original {cause}{inner}ValueError: image 3\nis broken"
    )
    trace = "Traceback (most recent call last):\n" + FRAME.format("/root/train.py", 7, "train") + message
    assert judge_error_file(message, trace).message.splitlines() == [
        "worker-0 failed: ValueError: image 3, at /root/data.py:9 in __getitem__ (user-error)",
        "  is broken (in DataLoader worker process 1)",
        "  caused by KeyError: 'cat', at /root/data.py:3 in read",
        "another attempt would fail the same way",
    ]


@pytest.mark.parametrize(
    ("workers", "expected"),
    [(1, ("FAILED", "EarlyExit", "user-error")), (2, ("RETRYABLE_FAILED", "RuntimeError", "system-error"))],
)
def test_replica_that_exited_before_its_lost_peer_failed_is_named(workers, expected):
    pods = [build_ended_pod("worker-0", 0, finished=88), build_ended_pod("master-0", 1, finished=92)]
    if workers > 1:
        pods.append(running("worker-1"))
    result = verdict(job(FAILED, workers=workers), *pods, error_files=[error_file("j-master-0", LOST)])
    assert short(result) == expected
    assert "worker-0" in result.message.splitlines()[0]
    # The message of the collective that failed follows.
    assert workers > 1 or result.message.splitlines()[1] == f"  {LOST}"


@pytest.mark.parametrize(
    "peer",
    [
        build_ended_pod("worker-0", 0, finished=99),
        build_ended_pod("worker-0", 0, finished=80, **GOING),
        running("worker-0"),
    ],
)
def test_peer_that_did_not_exit_earlier_is_not_named(peer):
    master, file = build_ended_pod("master-0", 1, finished=92), error_file("j-master-0", LOST)
    result = verdict(job(FAILED), peer, master, error_files=[file])
    assert short(result) == ("RETRYABLE_FAILED", "RuntimeError", "system-error")
    assert "worker-0" not in result.message.splitlines()[0]


EXITED = "RuntimeError: DataLoader worker (pid(s) 12, 13) exited unexpectedly"
KILLED = "RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed. "
CHAIN = f"Trace:\n\n    {KILLED}\n\n    The above exception was the direct cause of the following exception:\n\n    {EXITED}\nMessage:\n\n    {EXITED}"
OUTSIDE = "killed from outside, usually for lack of memory: request more, or load less per rank"
REFUSED = "a memory allocation failed: request more memory, or load less per rank"
ALONE = "another attempt would fail the same way"
GONE = "a process that it had started ended without an error: it may have been killed for lack of memory, or have crashed; its last output may be in the log"
WRITTEN = {
    "a loader's worker was killed, and is missed": ({"message": CHAIN}, ("RETRYABLE_FAILED", "RuntimeError", "oom-host"), ["  caused by RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed.", OUTSIDE]),
    "a loader's worker is gone": ({"exception": EXITED}, ("FAILED", "RuntimeError", "user-error"), [GONE, "another attempt may fail the same way"]),
    "a spawned process was killed": ({"exception": "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL"}, ("RETRYABLE_FAILED", "ProcessExitedException", "oom-host"), [OUTSIDE]),
    "memory refused without a message": ({"exception": "MemoryError: "}, ("RETRYABLE_FAILED", "MemoryError", "oom-host"), [REFUSED]),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "expected", "lines"), WRITTEN.values(), ids=WRITTEN)
def test_memory_and_child_process_errors_of_a_worker_have_a_cause(fields, expected, lines):
    answer = verdict(job(FAILED), build_ended_pod("worker-0", 1), error_files=[error_file(**fields)])
    assert short(answer) == expected
    assert answer.message.splitlines()[1:] == lines


ABORTED = "terminate called after throwing an instance of '{0}'\n  what():  {0}\n"
GAVE_UP = "native code aborted the process; its last output is in the log"
STARVED = "OCI runtime create failed: runc create failed: unable to start container process: container init was OOM-killed (memory limit too low?): unknown"
LAST_WORDS = {
    "native code had no memory": (134, "Error", ABORTED.format("std::bad_alloc"), ("RETRYABLE_FAILED", "SIGABRT", "oom-host"), REFUSED),
    "native code gave up": (134, "Error", ABORTED.format("std::logic_error"), ("FAILED", "SIGABRT", "user-error"), GAVE_UP),
    "torchrun's process lacked shared memory": (1, "Error", TORCHRUN.format(code=-7, trace="Signal 7 (SIGBUS) received by PID 12"), ("FAILED", "ExitCode", "user-error"), "shared memory may be full: @task(shared_memory=True) gives a pod more"),
    "no memory to start with": (128, "StartError", STARVED, ("RETRYABLE_FAILED", "StartError", "oom-host"), OUTSIDE),
    "other errors in its log": (3, "Error", f"std::bad_alloc\nCUDA out of memory\n{KILLED}", ("FAILED", "ExitCode", "user-error"), None),
}  # fmt: skip


@pytest.mark.parametrize(("code", "reason", "words", "expected", "hint"), LAST_WORDS.values(), ids=LAST_WORDS)
def test_termination_message_of_a_container_determines_the_cause(code, reason, words, expected, hint):
    answer = verdict(job(FAILED), build_ended_pod("worker-0", code, reason, container_message=words))
    assert short(answer) == expected
    hints = [line for line in answer.message.splitlines()[1:] if line != ALONE and not line.startswith("  ")]
    assert hints == ([hint] if hint else [])


def test_exit_code_setting_takes_precedence_over_the_termination_message():
    rules = JudgingContext(judging=JudgingSettings(exit_codes={134: Cause.INVALID_CONFIG}))
    aborted = build_ended_pod("worker-0", 134, container_message=ABORTED.format("std::bad_alloc"))
    assert short(verdict(job(FAILED), aborted, rules=rules)) == ("FAILED", "SIGABRT", "invalid-config")


def exited(code: int, since: float | None = 99, worker: str = "worker-0"):
    message = f"Pod: ns.j-{worker} exited with code {code}"
    return {"reason": "ExitedWithCode", "message": message, "lastTimestamp": since and at(since)}


def decided(annotation: str):
    return with_metadata(job(FAILED), annotations={verdict_annotation.ANNOTATION: annotation})


KEPT = verdict_annotation.encode(build_failure(Cause.SYSTEM_ERROR, "Failed", "m"), BEGAN)
TAKEN = {"conditions": [condition("DisruptionTarget", reason="PreemptionByScheduler")]}
ASKED = {
    "all have status Running": (job(FAILED), RUN, {}, True),
    "none is there": (job(FAILED), (), {}, True),
    "its operator saw one end that has status Running": (job(FAILED), RUN, {"events": [exited(3)]}, True),
    "its operator saw one end that is gone": (job(FAILED), RUN[:1], {"events": [exited(3)]}, False),
    "one has lost its peer, which has status Running": (job(FAILED), RUN, {"error_files": [LOST_PEER]}, True),
    "one has lost its peer, and none runs": (job(FAILED), (), {"error_files": [LOST_PEER]}, False),
    "one with status Running has written why": (job(FAILED), RUN, {"error_files": [error_file()]}, False),
    "one has ended": (job(FAILED), (running("master-0"), build_ended_pod("worker-0", 3)), {}, False),
    "one is taken away": (job(FAILED), (running("master-0"), pod("worker-0", **TAKEN)), {}, False),
    "it was decided": (decided(KEPT), RUN, {}, False),
    "another text is written there": (decided("{"), RUN, {}, True),
    "it was done": (job(SUCCEEDED), RUN, {}, False),
    "it is gone": (None, RUN, {}, False),
}


@pytest.mark.parametrize(("job", "pods", "more", "is_asked"), ASKED.values(), ids=ASKED)
def test_failed_job_without_a_cause_may_have_an_unobserved_termination(job, pods, more, is_asked):
    assert has_unobserved_termination(observe(job, *pods, **more)) is is_asked
