# ruff: noqa: E501 - a row a case
"""Tests for out-of-memory terminations without the reason OOMKilled, and for unexplained terminations."""

import pytest
from cluster import FAILED, build_ended_pod, error_file, job, short, verdict

from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.settings.judging import JudgingSettings
from kfpytorch_common.causes import Cause

LOST = "RuntimeError: DataLoader worker (pid(s) 12, 13) exited unexpectedly"
KILLED = "RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed. "
CHAIN = f"Trace:\n\n    {KILLED}\n\n    The above exception was the direct cause of the following exception:\n\n    {LOST}\nMessage:\n\n    {LOST}"
OUTSIDE = "killed from outside, usually for lack of memory: request more, or load less per rank"
REFUSED = "a memory allocation failed: request more memory, or load less per rank"
ALONE = "another attempt would fail the same way"
GONE = "a process that it had started ended without an error: it may have been killed for lack of memory, or have crashed; its last output may be in the log"
WRITTEN = {
    "a loader's worker was killed": ({"exception": KILLED}, ("RETRYABLE_FAILED", "RuntimeError", "oom-host"), [OUTSIDE]),
    "a loader's worker was killed, and is missed": ({"message": CHAIN}, ("RETRYABLE_FAILED", "RuntimeError", "oom-host"), ["  caused by RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed.", OUTSIDE]),
    "a loader's worker is gone": ({"exception": LOST}, ("FAILED", "RuntimeError", "user-error"), [GONE, "another attempt may fail the same way"]),
    "a spawned process was killed": ({"exception": "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL"}, ("RETRYABLE_FAILED", "ProcessExitedException", "oom-host"), [OUTSIDE]),
    "memory refused without a word": ({"exception": "MemoryError: "}, ("RETRYABLE_FAILED", "MemoryError", "oom-host"), [REFUSED]),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "expected", "lines"), WRITTEN.values(), ids=WRITTEN)
def test_memory_and_child_process_errors_of_a_worker_have_a_cause(fields, expected, lines):
    answer = verdict(job(FAILED), build_ended_pod("worker-0", 1), error_files=[error_file(**fields)])
    assert short(answer) == expected
    assert answer.message.splitlines()[1:] == lines


ABORTED = "terminate called after throwing an instance of '{0}'\n  what():  {0}\n"
TORCHRUN = """Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:01:29
  host      : j-worker-0
  rank      : 3 (local_rank: 1)
  exitcode  : {} (pid: 12)
  error_file: <N/A>
  traceback : {}
============================================================"""
GAVE_UP = "native code aborted the process; its last output is in the log"
STARVED = "OCI runtime create failed: runc create failed: unable to start container process: container init was OOM-killed (memory limit too low?): unknown"
LAST_WORDS = {
    "native code had no memory": (134, "Error", ABORTED.format("std::bad_alloc"), ("RETRYABLE_FAILED", "SIGABRT", "oom-host"), REFUSED),
    "native code gave up": (134, "Error", ABORTED.format("std::logic_error"), ("FAILED", "SIGABRT", "user-error"), GAVE_UP),
    "torchrun's process was killed": (1, "Error", TORCHRUN.format(-9, "Signal 9 (SIGKILL) received by PID 12"), ("RETRYABLE_FAILED", "ExitCode", "oom-host"), OUTSIDE),
    "torchrun's process lacked shared memory": (1, "Error", TORCHRUN.format(-7, "Signal 7 (SIGBUS) received by PID 12"), ("FAILED", "ExitCode", "user-error"), "shared memory may be full: @task(shared_memory=True) gives a pod more"),
    "no memory to start with": (128, "StartError", STARVED, ("RETRYABLE_FAILED", "StartError", "oom-host"), OUTSIDE),
    "other troubles in its log": (3, "Error", f"std::bad_alloc\nCUDA out of memory\n{KILLED}", ("FAILED", "ExitCode", "user-error"), None),
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
