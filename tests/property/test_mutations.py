# ruff: noqa: E501 - one case per row
"""Property tests: the judgement of a job succeeds for any content of cluster objects and error files."""

import json
import random
from copy import deepcopy
from datetime import datetime, timezone

import pytest
from histories import history
from tree_mutations import mutate

from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.verdict import Phase
from backend_plugin.core.object_readers import read_observed
from backend_plugin.core.pipeline import judge
from backend_plugin.core.settings.logs import LogLinkSettings, LogTemplate

RULES = JudgingContext(
    logs=LogLinkSettings(
        kubernetes_enabled=True, templates=(LogTemplate(name="x", template_uris=("{{ .podName }}{{.y}}",)),)
    )
)
NOW = datetime(2026, 1, 1, 1, tzinfo=timezone.utc)
ODD = (
    None, True, False, 0, -1, 2**70, 1e308, float("nan"), float("inf"), "", "x", "\ud800", "\x00\x1b[31m", "9" * 5_000,
    "2026-02-31T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", [], {}, [[]], [None], {"": {}}, "True",
    "Failed", "Running", "✗ t failed on rank 1 (w) after 1.0 s (nonsense)\nMessage:\n\n", "0/0 nodes are available: , ,.",
    "resource gap: map[a:{{99 99} b:{{1 -99}]", "a" * 20_000, ("tuple",), "ImagePullBackOff", "Evicted",
)  # fmt: skip


def check(first: int, cases: int) -> None:
    dice = random.Random(first)
    done = 0
    for seed in range(first, first + cases):
        for moment in history(seed, steps=30):
            tree = deepcopy(moment.observed)
            for _ in range(dice.randint(1, 4)):
                mutate(tree, dice, ODD)
            verdict = judge(read_observed(tree), RULES, dice.choice([NOW, moment.now]))
            assert verdict.phase is not Phase.UNDEFINED
            assert len(verdict.message) <= 1_000
            assert "backend_plugin" not in verdict.message
            json.dumps(verdict.info)
            verdict.message.encode()
            done += 1
            if done == cases:
                return


def test_mutated_objects_are_judged():
    check(0, 1_000)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_many_mutated_objects_are_judged():
    check(1, 100_000)
