# ruff: noqa: E501 - a row a case
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfpytorch_common import causes

GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/"
LOST = "Connection closed by peer [127.0.0.1]:9654. This is typically caused by a remote worker crashing."
WATCHDOG = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=10000) ran for 10037 milliseconds before timing out."
NCCL_ERROR = (
    "NCCL error in: NCCLUtils.cpp:93, invalid usage (run with NCCL_DEBUG=WARN for details)\nLast error:\n"
)


def failure(exception="", message="", **fields):
    how = {"rank": 0, "replica": "worker-0", "exit_code": 1, "time_ns": 0, **fields}
    return causes.Failure(exception=exception, message=message, **how)


def raised_by_torch(exception, message, **fields):
    return failure(exception, message, from_torch=True, **fields)


CONSEQUENCES = [
    ("RuntimeError", f"{GLOO}pair.cc:561] {LOST}"),
    ("RuntimeError", f"{GLOO}pair.cc:550] Read error [127.0.0.1]:4711: Connection reset by peer"),
    ("RuntimeError", f"{GLOO}unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"),
    ("RuntimeError", "Application timeout caused pair closure"),
    ("DistStoreError", "Timed out after 61 seconds waiting for clients. 1/2 clients joined."),
    ("DistStoreError", "wait timeout after 300000ms, keys: /default_pg/0//cpu//0/0"),
    ("DistNetworkError", "failed to recv, got 0 bytes"),
    ("DistNetworkError", "recvValue failed on SocketImpl(fd=5, addr=[localhost]:4, remote=[localhost]:5): "),
    ("DistNetworkError", "sendBytes failed on SocketImpl(fd=5): Broken pipe"),
    ("DistBackendError", "NCCL error in: ProcessGroupNCCL.cpp:2, remote process exited or there was a network error"),
    ("DistBackendError", WATCHDOG),
]  # fmt: skip


NO_CONSEQUENCES = [
    failure("ValueError", "connection closed"),
    failure("RuntimeError", LOST),
    failure("RuntimeError", "the data loader timed out waiting for the bucket"),
    failure("ConnectionResetError", "[Errno 104] Connection reset by peer"),
    failure("BrokenPipeError", "[Errno 32] Broken pipe"),
    failure("TimeoutError", "timed out waiting for the database"),
    failure("TimeoutError", ""),
    failure(exit_code=-9),
    raised_by_torch("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (4x3 and 4x3)"),
    raised_by_torch("RuntimeError", "DataLoader timed out after 5 seconds"),
    raised_by_torch("RuntimeError", "DataLoader worker (pid 12) is killed by signal: Killed."),
    raised_by_torch("ValueError", "Connection closed by peer"),
    raised_by_torch("OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 GiB."),
    raised_by_torch("ConnectionResetError", "Caught ConnectionResetError in DataLoader worker process 0.\nConnection reset by peer"),
]  # fmt: skip


def test_only_torch_errors_about_a_lost_peer_are_consequences():
    for exception, message in CONSEQUENCES:
        assert causes.is_consequence(raised_by_torch(exception, message)), message
    assert [each for each in NO_CONSEQUENCES if causes.is_consequence(each)] == []


# Failures in order, from the root cause to the least informative one.
ORDERED = [
    failure(rank=5, exit_code=-9, time_ns=50),
    failure(rank=6, exit_code=3, time_ns=60),
    failure("ValueError", "timed out", rank=3, time_ns=30),
    failure("SystemExit", "the function called sys.exit(3)", rank=4, exit_code=3, time_ns=40),
    # This rank closed its connections at its timeout. Its peer reported the lost connection earlier.
    raised_by_torch(*CONSEQUENCES[4], rank=2, time_ns=20),
    raised_by_torch("RuntimeError", LOST, rank=1, time_ns=10),
    failure(rank=0, exit_code=-15, time_ns=1, stopped=True),
    failure("KeyboardInterrupt", rank=7, time_ns=2, stopped=True),
]


@given(st.lists(st.sampled_from(range(len(ORDERED))), min_size=1, unique=True))
def test_root_cause_does_not_depend_on_the_order_of_failures(places: list[int]) -> None:
    assert causes.select_root_cause(ORDERED[place] for place in places) == ORDERED[min(places)]


CAUSES: list[tuple[causes.Cause, list[causes.Failure]]] = [
    (causes.Cause.OOM_GPU, [
        raised_by_torch("OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 GiB."),
        raised_by_torch("RuntimeError", "CUDA out of memory. Tried to allocate 2.00 MiB"),
        raised_by_torch("OutOfMemoryError", "HIP out of memory. Tried to allocate 2 GiB"),
        raised_by_torch("AcceleratorError", "CUDA error: out of memory\nCUDA kernel errors might"),
    ]),
    (causes.Cause.OOM_HOST, [
        failure("RuntimeError", "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
        failure(exit_code=-signal.SIGKILL),
    ]),
    (causes.Cause.NCCL_TIMEOUT, [
        raised_by_torch("DistBackendError", WATCHDOG),
        raised_by_torch("RuntimeError", f"NCCL communicator was aborted on rank 0. Original reason for failure was: {WATCHDOG}"),
    ]),
    (causes.Cause.HANG, [
        *(raised_by_torch(*CONSEQUENCES[each]) for each in (2, 4, 5)),
        raised_by_torch("DistNetworkError", "The client socket has timed out after 60000ms while trying to connect to (train-master-0, 23456)."),
        failure("RendezvousFailed", "1 of 2 nodes came"),
    ]),
    (causes.Cause.PREEMPTED, [failure(exit_code=-signal.SIGTERM)]),
    (causes.Cause.USER_ERROR, [
        failure(exit_code=-signal.SIGSEGV),
        failure(exit_code=3),
        failure("SystemExit", "the function called sys.exit(3)", exit_code=3),
        failure("TimeoutError", "timed out waiting for the database"),
        failure("ValueError", "nccl_timeout must be above 0"),
        raised_by_torch(*CONSEQUENCES[0]),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "failures"), CAUSES, ids=lambda each: getattr(each, "value", ""))
def test_failure_is_classified_with_a_cause(cause: causes.Cause, failures: list[causes.Failure]) -> None:
    assert [each for each in failures if causes.classify(each) is not cause] == []


def test_signal_has_its_name():
    names = {0: "", 137: "", -9: "SIGKILL", -11: "SIGSEGV", -200: "signal 200"}
    assert {code: failure(exit_code=code).signal for code in names} == names


KILLED = "killed from outside, usually for lack of memory: request more, or load less per rank"
REFUSED = "a memory allocation failed: request more memory, or load less per rank"
GPU = "lower the batch size, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
CRASHED = "a crash in native code, in a process that it had started; its last output is in the log"
SHARED = "shared memory may be full: @task(shared_memory=True) gives a pod more"
GONE = "a process that it had started ended without an error: it may have been killed for lack of memory, or have crashed; its last output may be in the log"
ABORTED = "terminate called after throwing an instance of '{}'\n  what():  {}\n"
TORCHRUN = """E0101 failed (exitcode: {code}) local_rank: 1 (pid: 12) of binary: /usr/bin/python
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  exitcode  : {other} (pid: 11)
  traceback : Signal 9 (SIGKILL) received by PID 11
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:01:29
  host      : j-worker-0
  rank      : 3 (local_rank: 1)
  exitcode  : {code} (pid: 12)
  error_file: <N/A>
  traceback : x
============================================================"""


def loader(how):
    return f"DataLoader worker (pid 12) is killed by signal: {how}. "


def lost(*, after=""):
    message = "DataLoader worker (pid(s) 12, 13) exited unexpectedly"
    link = "The above exception was the direct cause of the following exception:"
    chain = f"RuntimeError: {after}\n\n{link}\n\n" if after else ""
    return raised_by_torch("RuntimeError", message, traceback=f"{chain}RuntimeError: {message}\n")


def spawned(name):
    return failure("ProcessExitedException", f"process 1 terminated with signal {name}")


WITHIN = {
    "a bus error": (failure(exit_code=-7), causes.Cause.USER_ERROR, SHARED),
    "a loader's worker is killed": (failure("RuntimeError", loader("Killed")), causes.Cause.OOM_HOST, KILLED),
    "a loader's worker crashes": (failure("RuntimeError", loader("Segmentation fault")), causes.Cause.USER_ERROR, CRASHED),
    "a loader's worker lacks shared memory": (failure("RuntimeError", loader("Bus error")), causes.Cause.USER_ERROR, SHARED),
    "a loader's worker gets SIGTERM": (failure("RuntimeError", loader("Terminated")), causes.Cause.USER_ERROR, ""),
    "a loader's worker is gone": (lost(), causes.Cause.USER_ERROR, GONE),
    "a loader's worker is gone after a kill": (lost(after=loader("Killed")), causes.Cause.OOM_HOST, KILLED),
    "a loader's worker left": (failure("RuntimeError", "DataLoader worker (pid 7) exited unexpectedly with exit code 3."), causes.Cause.USER_ERROR, ""),
    "a pool's process is gone": (failure("BrokenProcessPool", "A process in the process pool was terminated abruptly while the future was running or pending."), causes.Cause.USER_ERROR, GONE),
    "a spawned process is killed": (spawned("SIGKILL"), causes.Cause.OOM_HOST, KILLED),
    "torchrun's first was killed": (failure(message=TORCHRUN.format(code=-9, other=-9)), causes.Cause.OOM_HOST, KILLED),
    "torchrun's first crashed": (failure(message=TORCHRUN.format(code=-11, other=-9)), causes.Cause.USER_ERROR, CRASHED),
    "torchrun killed the others": (failure(message=TORCHRUN.format(code=1, other=-9)), causes.Cause.USER_ERROR, ""),
    "torchrun as an exception": (failure("ChildFailedError", TORCHRUN.format(code=1, other=-9)), causes.Cause.USER_ERROR, ""),
    "a number that is no signal": (failure(message=TORCHRUN.format(code=-99, other=-9)), causes.Cause.USER_ERROR, ""),
    "memory refused to Python": (failure("MemoryError", ""), causes.Cause.OOM_HOST, REFUSED),
    "memory refused to numpy": (failure("numpy.core._exceptions._ArrayMemoryError", "Unable to allocate"), causes.Cause.OOM_HOST, REFUSED),
    "memory refused by the system": (failure("OSError", "[Errno 12] Cannot allocate memory"), causes.Cause.OOM_HOST, REFUSED),
    "memory refused to a map": (failure("RuntimeError", "unable to mmap 8 bytes from file <x>: Cannot allocate memory (12)"), causes.Cause.OOM_HOST, REFUSED),
    "memory refused to native code": (failure(exit_code=-6, message=ABORTED.format("std::bad_alloc", "std::bad_alloc")), causes.Cause.OOM_HOST, REFUSED),
    "native code that gave up": (failure(exit_code=-6, message=ABORTED.format("std::logic_error", "x")), causes.Cause.USER_ERROR, "native code aborted the process; its last output is in the log"),
    "a GPU's memory, in C++'s words": (failure("MemoryError", "std::bad_alloc: out_of_memory: CUDA error at: x.hpp: cudaErrorMemoryAllocation out of memory"), causes.Cause.OOM_GPU, GPU),
    "a log with other errors": (failure(exit_code=3, message=f"std::bad_alloc\nCUDA out of memory\n{loader('Killed')}"), causes.Cause.USER_ERROR, ""),
    "a message about memory": (failure("ValueError", "caught a MemoryError"), causes.Cause.USER_ERROR, ""),
}  # fmt: skip


@pytest.mark.parametrize(("ended", "cause", "sentence"), WITHIN.values(), ids=WITHIN)
def test_terminated_child_process_and_failed_allocation_have_own_causes(ended, cause, sentence) -> None:
    assert (causes.classify(ended), causes.get_remedy(ended)) == (cause, sentence)
    assert causes.is_unexplained(ended) is (sentence == GONE)


@pytest.mark.parametrize(
    ("message", "phrase"),
    [
        ("No backend type associated with device type cpu", "move the tensor to the GPU"),
        (f"{NCCL_ERROR}Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60", "torch.cuda.set_device()"),
    ],
)  # fmt: skip
def test_wrong_use_of_nccl_has_a_remedy(message: str, phrase: str) -> None:
    ended = failure("RuntimeError", message)
    assert causes.classify(ended) is causes.Cause.USER_ERROR
    assert phrase in causes.get_remedy(ended)
