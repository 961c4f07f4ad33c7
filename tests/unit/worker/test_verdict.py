"""Selection of the rank for a report: a rank that ended early, if the others lost it."""

import dataclasses

import pytest

from flytekitplugins.kfpytorch.worker.verdict import analyze_failures, explain_abort
from kfpytorch_common.causes import Failure, Frame, RaisedException

LOST = Failure(
    rank=0,
    replica="master-0",
    exit_code=1,
    time_ns=5 * 10**9,
    exception="RuntimeError",
    message="[/pytorch/third_party/gloo/pair.cc:561] Connection closed by peer",
    from_torch=True,
)
TIMED_OUT = dataclasses.replace(LOST, message="third_party/gloo Timed out waiting 4000ms for recv operation")
RETURNED = Failure(
    rank=1, replica="worker-0", exit_code=0, time_ns=4 * 10**9, message="the function returned"
)
SILENT = dataclasses.replace(RETURNED, message="", time_ns=5_500_000_000)
LATE = dataclasses.replace(RETURNED, time_ns=6 * 10**9)
LONG_AFTER = dataclasses.replace(SILENT, time_ns=7 * 10**9)
BUSY = Failure(rank=2, replica="worker-1", exit_code=-15, time_ns=6 * 10**9, stopped=True)
WAITED = dataclasses.replace(BUSY, waiting=True)
RAISED = dataclasses.replace(BUSY, exit_code=1, exception="ValueError", stopped=False)


@pytest.mark.parametrize(
    ("failures", "well", "early"),
    [
        pytest.param([LOST], [RETURNED], [1], id="it returned before"),
        pytest.param([LOST, WAITED], [RETURNED], [1], id="others waited as well"),
        pytest.param([LOST, BUSY], [RETURNED], [1], id="others did not wait"),
        pytest.param([TIMED_OUT], [RETURNED], [1], id="it was waited for"),
        pytest.param([TIMED_OUT, BUSY], [RETURNED], [], id="another one was late"),
        pytest.param([LOST], [LATE], [], id="it returned after"),
        pytest.param([LOST], [SILENT], [1], id="its end was noticed late"),
        pytest.param([LOST], [LONG_AFTER], [], id="it ended long after"),
        pytest.param([LOST, RAISED], [RETURNED], [], id="another one raised"),
        pytest.param([LOST], [], [], id="nobody ended"),
        pytest.param([LOST], [dataclasses.replace(RETURNED, rank=3), RETURNED], [1, 3], id="two returned"),
    ],
)
def test_rank_is_early_if_others_lost_it(failures, well, early) -> None:
    verdict = analyze_failures(failures, well)
    assert [each.rank for each in verdict.early] == early
    assert verdict.cause.rank == (early[0] if early else verdict.cause.rank)
    assert (verdict.cause.exception == "EarlyExit") is bool(early)


def test_rank_0_that_exits_with_code_0_is_early_if_others_waited() -> None:
    left = dataclasses.replace(
        LOST, exit_code=0, exception="SystemExit", message="the function called sys.exit(0)"
    )
    peer = dataclasses.replace(LOST, rank=1)
    assert analyze_failures([left, peer], []).early == [left]
    assert analyze_failures([left, peer], []).others == [peer]
    assert analyze_failures([left], []).early == ()


ABORTED = Failure(rank=1, replica="worker-0", exit_code=-6, time_ns=5, pid=77)
WORDS = ["terminate called", "  what():  op.preamble.length <= op.nbytes. 8 vs 4. Received data size"]


def test_gloo_abort_is_explained_as_a_collective_mismatch() -> None:
    sentence = "gloo received 8 bytes and expected 4, and ended process 77 with SIGABRT"
    explained = explain_abort(ABORTED, WORDS)
    assert (explained.exception, explained.message) == ("CollectiveMismatch", sentence)
    killed = dataclasses.replace(ABORTED, exit_code=-9)
    for failure, words in ((ABORTED, ["terminate called"]), (killed, WORDS)):
        assert explain_abort(failure, words) == failure


BARRIER = Frame(file="/home/me/train.py", line=9, function="train", code="dist.barrier()")
CAUGHT = RaisedException(
    exception="RuntimeError", message=LOST.message, frames=(BARRIER,), collective="barrier", from_torch=True
)
WRAPPED = dataclasses.replace(LOST, message="wrapped", from_torch=False, chain=(CAUGHT,))


def test_rank_is_early_if_another_wrapped_the_error_of_its_lost_connection() -> None:
    found = analyze_failures([WRAPPED], [RETURNED])
    assert [each.rank for each in found.early] == [1]
    [other] = found.others
    assert (other.exception, other.message) == ("RuntimeError", LOST.message)
    assert (other.frames, other.collective) == ((BARRIER,), "barrier")


def test_wrapped_connection_error_is_a_consequence_of_another_error() -> None:
    late = dataclasses.replace(RAISED, time_ns=9 * 10**9)
    assert analyze_failures([WRAPPED, late], []).cause is late
    assert analyze_failures([WRAPPED, WAITED], []).cause is WRAPPED
