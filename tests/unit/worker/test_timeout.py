"""The failure of a local run that took longer than the timeout of its task."""

from datetime import timedelta

from flytekitplugins.kfpytorch.worker import outcome
from kfpytorch_common.causes import Failure, Frame, select_root_cause

PLACE = Frame(file="/home/me/train.py", line=9, function="train", code="dist.barrier()")


def stopped(rank: int | None, *frames: Frame) -> Failure:
    return Failure(rank=rank, replica="", exit_code=-15, time_ns=1, stopped=True, frames=frames)


def test_timeout_report_lists_the_positions_of_the_ranks() -> None:
    ranks = [stopped(0, PLACE), stopped(1), stopped(2, PLACE), stopped(None)]
    failure = outcome.build_timeout_failure(timedelta(minutes=1), ranks)
    assert failure.message.splitlines() == [
        "the task ran longer than 60 s, its @task(timeout=...)",
        "ranks 0, 2 at /home/me/train.py:9 in train",
        "rank 1 at an unknown place",
    ]
    assert select_root_cause([failure]) is failure
