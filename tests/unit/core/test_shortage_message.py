# ruff: noqa: E501 - a row a case
"""Tests for the sentence on resource shortages."""

import pytest
from msgspec import structs

from backend_plugin.core.judging.pending import PendingReason, PendingStage, ResourceShortage
from backend_plugin.core.judging.shortage_message import format_sentence
from backend_plugin.core.scheduling.gang_annotation import NO_GANG
from kfpytorch_common.causes import Cause
from kfpytorch_common.quantity import parse

GPUS = ResourceShortage(resource="nvidia.com/gpu", missing=parse("4"), requested=parse("8"), free=parse("4"))


def wait(*lacks, **fields):
    return PendingReason(
        stage=PendingStage.HELD,
        cause=Cause.QUEUE,
        reason="Pending",
        shortages=lacks,
        **{"text": "m", **fields},
    )


@pytest.mark.parametrize(
    ("waiting", "sentence"),
    [
        (wait(GPUS, queue="team-a", ahead=2), "waiting for 4 nvidia.com/gpu in queue team-a: 8 requested, 4 free; 2 jobs ahead"),
        (wait(GPUS, queue="team-a", ahead=1), "waiting for 4 nvidia.com/gpu in queue team-a: 8 requested, 4 free; 1 job ahead"),
        (wait(queue="team-a", ahead=0), "queue team-a: m; next in its queue"),
        (wait(GPUS, again="taken back; "), "taken back; waiting for 4 nvidia.com/gpu in the cluster: 8 requested, 4 free"),
        (wait(ResourceShortage(resource="cpu", requested=parse("8"), missing=parse("9"))), "waiting for 9 cpu in the cluster: 8 requested"),
        (wait(), "m"),
    ],
)  # fmt: skip
def test_shortage_sentence_contains_amount_place_and_reason(waiting, sentence):
    assert format_sentence(waiting, NO_GANG, {}) == sentence


def test_shortage_of_the_nodes_is_not_one_of_the_queue_that_admitted_the_job():
    gang = structs.replace(NO_GANG, queue="team")
    of_nodes = structs.replace(GPUS, counts_own=True)
    sentence = "waiting for 4 nvidia.com/gpu in %s: 8 requested, 4 free"
    assert format_sentence(wait(of_nodes), gang, {}) == sentence % "the cluster"
    assert format_sentence(wait(GPUS), gang, {}) == sentence % "queue team"
