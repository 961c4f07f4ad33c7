"""The rank that a failure report names, and the report: the root cause, the other ranks, the remedy."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flytekitplugins.kfpytorch.worker import report
from flytekitplugins.kfpytorch.worker.outcome import RunOutcome, build_timeout_failure
from flytekitplugins.kfpytorch.worker.rank_groups import list_positions
from flytekitplugins.kfpytorch.worker.verdict import FailureAnalysis, analyze_failures, explain_abort
from kfpytorch_common.causes import Failure, Frame, RaisedException, select_root_cause

CALLER = Frame(file="/home/me/flow.py", line=30, function="train", code="fit(model)")
INNER = Frame(file="/home/me/model.py", line=12, function="fit", code="loss = model(batch)")
CAUSE = Failure(
    rank=1,
    replica="worker-0",
    exit_code=1,
    time_ns=1,
    pid=77,
    exception="ValueError",
    message="no such column: 'y'",
    frames=(CALLER, INNER),
    traceback="Traceback (most recent call last):\n  all of it\nValueError: no such column: 'y'\n",
)
WAITED = Failure(
    rank=0, replica="master-0", exit_code=-15, time_ns=2, stopped=True, waiting=True, frames=(CALLER,)
)
AFTER = report.FailureReport(
    task="flow.train",
    verdict=FailureAnalysis(cause=CAUSE, others=[WAITED]),
    well=[Failure(rank=2, replica="worker-1", exit_code=0, time_ns=9, message="the function returned")],
    ranks=3,
    seconds=4.26,
    logs="/logs/run",
)
ABORTED = Failure(rank=1, replica="worker-0", exit_code=-6, time_ns=5, pid=77)
WORDS = ["terminate called", "  what():  op.preamble.length <= op.nbytes. 8 vs 4. Received data size"]


def cause(**fields):
    return dataclasses.replace(CAUSE, **fields)


def lines(*, cause=CAUSE, others=(WAITED,), **fields):
    about = fields.pop("verdict", FailureAnalysis(cause=cause, others=others))
    return report.render(dataclasses.replace(AFTER, verdict=about, **fields)).splitlines()


def test_verbose_report_has_the_traceback_and_that_of_a_pod_nothing_in_place_of_the_rerun_command():
    assert lines(verbose=True) == [*lines()[:-1], *CAUSE.traceback.splitlines()]
    assert lines(at_terminal=False) == lines()[:-1]


def test_report_of_a_killed_rank_has_no_trace():
    killed = Failure(rank=1, replica="worker-0", exit_code=-9, time_ns=1, pid=77)
    message = "Connection closed by peer"
    lost = cause(rank=0, exception="RuntimeError", message=message, from_torch=True, collective="barrier")
    failed = cause(rank=4, exception="KeyError", message="'y'")
    ended = Failure(rank=3, replica="worker-2", exit_code=3, time_ns=9)
    assert lines(cause=killed, others=[lost, ended, failed], ranks=5, logs="") == [
        "✗ flow.train failed on rank 1 (worker-0) after 4.3 s (oom-host): killed by SIGKILL",
        "  killed by SIGKILL (process 77)",
        "  others rank 0 waited in barrier at /home/me/model.py:12 in fit; rank 3 ended by 3; rank 4 failed with KeyError at",  # noqa: E501
        "         /home/me/model.py:12 in fit; rank 2 ended well",
        "  hint   killed from outside, usually for lack of memory: request more, or load less per rank",
    ]


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"exception": "RendezvousFailed", "rank": None}, "rdzv_configs={'join_timeout': seconds}"),
        ({"recoverable": True}, "@task(retries=...)"),
        ({"exception": "ModuleNotFoundError"}, "sys.path"),
    ],
    ids=["rendezvous", "recoverable", "import"],
)
def test_report_has_a_hint_for_the_cause(fields: dict[str, Any], hint: str) -> None:
    assert [hint in line for line in lines(cause=cause(**fields)) if line.startswith("  hint   ")] == [True]


def test_long_message_in_a_pod_is_truncated_with_a_count():
    message = "\n".join(f"line {number}" for number in range(1, 21))
    shown = lines(cause=cause(message=message, frames=(INNER,)), others=[], ranks=1, at_terminal=False)
    first = ["  ValueError: line 1", "  line 2", "  line 3", "  line 4"]
    assert shown[1:7] == [*first, "  … (16 more lines, in the log)", "    ❱ loss = model(batch)"]


def test_ranks_with_the_same_failure_are_listed_together():
    for ranks, expected in (((2, 0), "ranks 0, 2"), (range(2, 20), "ranks 2-19")):
        others = [dataclasses.replace(WAITED, rank=rank) for rank in ranks]
        shown = lines(others=others, well=[], ranks=len(others) + 1)
        assert f"  others {expected} waited at /home/me/flow.py:30 in train" in shown


def test_report_of_a_pod_makes_no_claims_about_other_pods():
    hung = cause(rank=3, exception="DistStoreError", message="wait timeout after 9 ms", from_torch=True)
    shown = lines(cause=hung, others=[dataclasses.replace(WAITED, rank=2)], ranks=2, at_terminal=False)
    assert [line for line in shown if "it waited for" in line] == []


def test_report_is_limited_for_ranks_at_many_positions():
    def build_waiting_rank(rank):
        return dataclasses.replace(WAITED, rank=rank, frames=(dataclasses.replace(CALLER, line=rank),))

    shown = lines(others=[build_waiting_rank(rank) for rank in range(2, 100)], ranks=100)
    assert (shown[:3], len(shown) <= report.MOST_LINES == 25) == (lines()[:3], True)


def test_error_shared_by_several_ranks_is_reported_once():
    others = [cause(rank=rank, message=f"no column on rank {rank}") for rank in (0, 2, 3, 4, 6)]
    shown = lines(others=[*others, cause(rank=7, frames=(CALLER,))], well=[], ranks=8)
    assert [line for line in shown if line.startswith("  others")] == [
        "  others ranks 0, 2-4, 6 raised the same error; "
        "rank 7 failed with ValueError at /home/me/flow.py:30 in train"
    ]


def test_exception_chain_of_the_error_is_shown():
    first = RaisedException(exception="OSError", message="disk\nfull", handled=True)
    second = RaisedException(exception="KeyError", message="'y'", frames=(CALLER,))
    assert lines(cause=cause(chain=(first, second)))[1:5] == [
        "  ValueError: no such column: 'y'",
        "  caused by KeyError: 'y', at /home/me/flow.py:30 in train",
        "  raised while handling OSError: disk",
        "    ❱ loss = model(batch)",
    ]


def test_long_line_of_a_message_is_not_wrapped():
    message = "word " * 3_000
    assert lines(cause=cause(message=message))[1] == f"  ValueError: {message}"
    assert lines(cause=cause(message="x" * 16_500))[1] == (
        f"  ValueError: {'x' * 15_988}… (512 more characters, in the log)"
    )
    assert lines(cause=cause(message="x" * 2_500), at_terminal=False)[1] == (
        f"  ValueError: {'x' * 1_988}… (512 more characters, in the log)"
    )


def test_lines_of_a_long_message_are_shown_up_to_a_limit():
    message_lines = [f"line {number} {'x' * 60}" for number in range(150)]
    shown = lines(cause=cause(message="\n".join(message_lines)))
    assert shown[1:151] == [f"  ValueError: {message_lines[0]}", *(f"  {line}" for line in message_lines[1:])]
    assert shown[151:] == lines()[2:]
    assert lines(cause=cause(message="\n" * 300))[200] == "  … (101 more lines, in the log)"


def in_collective(rank, collective, line):
    frames = (dataclasses.replace(CALLER, line=line),)
    return dataclasses.replace(WAITED, rank=rank, collective=collective, frames=frames)


def test_positions_in_different_collectives_end_with_a_line_about_them():
    reduce, cast = in_collective(0, "all_reduce", 7), in_collective(1, "broadcast", 9)
    assert list_positions([reduce, cast, in_collective(2, "all_reduce", 7), WAITED])[-1] == (
        "ranks are in different collectives: ranks 0, 2 in all_reduce at /home/me/flow.py:7 in train, "
        "rank 1 in broadcast at /home/me/flow.py:9 in train"
    )


@pytest.mark.parametrize("names", [("all_reduce", "all_reduce"), ("send", "recv"), ("barrier", "")], ids=str)
def test_positions_in_matching_collectives_have_no_line_about_them(names: tuple[str, str]) -> None:
    stopped = [in_collective(rank, name, rank) for rank, name in enumerate(names)]
    assert all(line.startswith("rank ") for line in list_positions(stopped))


def test_failure_is_formatted_in_one_line():
    at, long = ", at /home/me/model.py:12 in fit", cause(message="x" * 250)
    for failure, expected in {
        CAUSE: f"rank 1 (worker-0): ValueError: no such column: 'y'{at}",
        cause(frames=()): "rank 1 (worker-0): ValueError: no such column: 'y'",
        WAITED: "rank 0 (master-0): SIGTERM, at /home/me/flow.py:30 in train",
        cause(exception="", exit_code=3): f"rank 1 (worker-0): exit code 3{at}",
        long: f"rank 1 (worker-0): ValueError: {'x' * 200}… (50 more characters, in the log){at}",
    }.items():
        assert report.format_failure(failure) == expected


def test_timeout_failure_lists_the_positions_of_the_ranks():
    frames = {0: (CALLER,), 1: (), 2: (CALLER,), None: ()}
    ranks = [dataclasses.replace(WAITED, rank=rank, frames=each) for rank, each in frames.items()]
    failure = build_timeout_failure(timedelta(minutes=1), RunOutcome(failures=ranks))
    assert failure.replica == "all ranks"
    assert failure.message.splitlines() == [
        "the task ran longer than 60 s, its @task(timeout=...)",
        "ranks 0, 2 at /home/me/flow.py:30 in train",
        "rank 1 at an unknown place",
    ]
    assert select_root_cause([failure]) is failure


def test_timeout_failure_names_only_the_ranks_that_still_ran():
    hung, well = dataclasses.replace(WAITED, rank=1), dataclasses.replace(WAITED, rank=0, exit_code=0)
    failure = build_timeout_failure(timedelta(minutes=1), RunOutcome(failures=[hung], well=[well]))
    assert (failure.replica, failure.message.splitlines()[-1]) == ("rank 1", "rank 0 ended well")


def test_start_error_is_rendered():
    assert report.render_start_error("flow.train", ValueError("word " * 30)).splitlines() == [
        "✗ flow.train did not run",
        "  ValueError:" + " word" * 19,
        "  word" + " word" * 10,
    ]


TEXTS = st.one_of(
    st.text(max_size=30),
    st.lists(st.sampled_from([*"\n\r\t \u2028", "\x1b[31m", "word"]), max_size=40).map("".join),
    st.sampled_from(["x" * 64_000, "\n" * 64_000, "word " * 12_000, "-" * 64_000]),
)
FAILURES = st.builds(
    Failure,
    rank=st.none() | st.integers(0, 99),
    replica=st.sampled_from(["worker-0", "node 1"]),
    exit_code=st.integers(-64, 255),
    time_ns=st.integers(0),
    exception=st.sampled_from(["", "ValueError", "RendezvousFailed", "RuntimeError", "DistStoreError"]),
    message=TEXTS | st.just("Timed out after 9 seconds waiting for clients"),
    frames=st.lists(st.sampled_from([CALLER, INNER]), max_size=30).map(tuple),
    traceback=TEXTS,
    from_torch=st.booleans(),
    stopped=st.booleans(),
    waiting=st.booleans(),
)
AFTERMATHS = st.builds(
    report.FailureReport,
    task=st.just("flow.train"),
    verdict=st.builds(
        analyze_failures, st.lists(FAILURES, min_size=1, max_size=4), st.lists(FAILURES, max_size=3)
    ),
    ranks=st.integers(1, 100),
    seconds=st.floats(0, 10**6),
    last_words=st.lists(st.sampled_from(["word", "x" * 3_000]), max_size=10),
    logs=st.sampled_from(["/logs/run", ""]),
    at_terminal=st.booleans(),
)


@given(AFTERMATHS)
def test_report_fits_on_a_screen_and_starts_with_the_cause(after: report.FailureReport) -> None:
    shown = report.render(after).splitlines()
    first = "\n".join(shown[:3])
    message = len(f"x{after.verdict.cause.message}\nx".splitlines()) - 1
    assert len(shown) <= 25 + max(0, message - 5)
    assert after.verdict.cause.replica in first
    assert (after.verdict.cause.exception or f"process {after.verdict.cause.pid}") in first
    assert after.logs in "\n".join(shown)


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
BUSY = Failure(rank=2, replica="worker-1", exit_code=-15, time_ns=6 * 10**9, stopped=True)
WAITING = dataclasses.replace(BUSY, waiting=True)
RAISED = dataclasses.replace(BUSY, exit_code=1, exception="ValueError", stopped=False)


@pytest.mark.parametrize(
    ("failures", "well", "early"),
    [
        pytest.param([LOST], [RETURNED], [1], id="it returned before"),
        pytest.param([LOST, WAITING], [RETURNED], [1], id="others waited as well"),
        pytest.param([LOST, BUSY], [RETURNED], [1], id="others did not wait"),
        pytest.param([TIMED_OUT], [RETURNED], [1], id="it was waited for"),
        pytest.param([TIMED_OUT, BUSY], [RETURNED], [], id="another one was late"),
        pytest.param([LOST], [dataclasses.replace(RETURNED, time_ns=6 * 10**9)], [], id="it returned after"),
        pytest.param([LOST], [SILENT], [1], id="its end was noticed late"),
        pytest.param([LOST], [dataclasses.replace(SILENT, time_ns=7 * 10**9)], [], id="it ended long after"),
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


def test_rank_0_that_exits_with_code_0_is_early_if_others_waited():
    left = dataclasses.replace(
        LOST, exit_code=0, exception="SystemExit", message="the function called sys.exit(0)"
    )
    peer = dataclasses.replace(LOST, rank=1)
    assert analyze_failures([left, peer], []).early == [left]
    assert analyze_failures([left, peer], []).others == [peer]
    assert analyze_failures([left], []).early == ()


def test_gloo_abort_is_explained_as_a_collective_mismatch():
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


def test_rank_is_early_if_another_wrapped_the_error_of_its_lost_connection():
    found = analyze_failures([WRAPPED], [RETURNED])
    assert [each.rank for each in found.early] == [1]
    [other] = found.others
    assert (other.exception, other.message) == ("RuntimeError", LOST.message)
    assert (other.frames, other.collective) == ((BARRIER,), "barrier")


def test_wrapped_connection_error_is_a_consequence_of_another_error():
    late = dataclasses.replace(RAISED, time_ns=9 * 10**9)
    assert analyze_failures([WRAPPED, late], []).cause is late
    assert analyze_failures([WRAPPED, WAITING], []).cause is WRAPPED
