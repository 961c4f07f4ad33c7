"""Property tests of judge(): phases never go back, verdicts are correct, and any content is judged."""

import json
import random
from copy import deepcopy
from datetime import datetime, timedelta, timezone

import pytest
from histories import Moment, history
from tree_mutations import mutate

from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.verdict import Phase, Verdict, is_retryable
from backend_plugin.core.object_readers import read_observed
from backend_plugin.core.pipeline import judge
from backend_plugin.core.settings.judging import JudgingSettings, LogLinkSettings, LogTemplate
from kfpytorch_common.causes import Cause

ORDER = {phase: position for position, phase in enumerate(Phase)}
ENDS = {Phase.SUCCEEDED, Phase.RETRYABLE_FAILED, Phase.FAILED}
# Other tests cover the timeouts of a platform.
PATIENT = JudgingSettings(
    no_status_timeout=timedelta(0),
    pending_timeout=timedelta(0),
    image_pull_backoff_grace_period=timedelta(days=1),
)
RULES = JudgingContext(judging=PATIENT)
SOAK = [pytest.mark.soak, pytest.mark.timeout(1_800)]


def judged(moment: Moment) -> Verdict:
    return judge(read_observed(moment.observed), RULES, moment.now)


def until_the_end(seed: int) -> list[tuple[Moment, Verdict]]:
    """Return the verdicts up to the first terminal one, after which Flyte makes no more calls."""
    verdicts = []
    for moment in history(seed):
        verdict = judged(moment)
        verdicts.append((moment, verdict))
        if verdict.phase in ENDS:
            break
    return verdicts


def check(seed: int) -> None:
    verdicts = until_the_end(seed)
    phases = [ORDER[verdict.phase] for _, verdict in verdicts]
    assert phases == sorted(phases), (seed, [verdict.phase.value for _, verdict in verdicts])
    for moment, verdict in verdicts:
        is_consistent(verdict)
        if verdict.phase in ENDS:
            is_right_end(moment, verdict)
    if verdicts[-1][1].phase not in ENDS:
        # The verdict can be delayed by a minute while a restarted worker is pending.
        assert verdicts[-1][0].job_ended in ("", "Succeeded", "Failed")


def is_consistent(verdict: Verdict) -> None:
    failed = verdict.phase in (Phase.FAILED, Phase.RETRYABLE_FAILED)
    assert verdict.retry is (verdict.phase is Phase.RETRYABLE_FAILED)
    assert not failed or (verdict.cause is not None and verdict.retry is is_retryable(verdict.cause))
    assert verdict.reason
    assert verdict.message.splitlines()[0]
    assert len(verdict.message) <= 1_000
    assert verdict.phase is not Phase.UNDEFINED


def is_right_end(moment: Moment, verdict: Verdict) -> None:
    assert moment.job_ended, "an end before the job's own"
    if verdict.phase is Phase.SUCCEEDED:
        assert moment.job_ended in ("Succeeded", "gone")
        assert moment.outlived
    if moment.job_ended == "Succeeded" and moment.outlived:
        assert verdict.phase is Phase.SUCCEEDED
    if verdict.phase is Phase.FAILED:
        assert "user" in moment.blamed
    if moment.blamed == {"user"} and moment.job_ended == "Failed":
        assert (verdict.phase, verdict.cause) == (Phase.FAILED, Cause.USER_ERROR)
    if moment.blamed == {"infra"} and moment.job_ended == "Failed":
        assert verdict.phase is Phase.RETRYABLE_FAILED


@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 20_000), marks=SOAK)], ids=str)
def test_job_histories_end_correctly_and_phases_never_go_back(seeds):
    for seed in seeds:
        check(seed)


@pytest.mark.parametrize("seed", range(25))
def test_verdict_does_not_depend_on_the_order_of_objects(seed):
    dice = random.Random(seed)
    for moment in history(seed):
        verdict = judged(moment)
        for key in ("pods", "error_files"):
            dice.shuffle(moment.observed[key])
        if moment.observed["job"]:
            dice.shuffle(moment.observed["job"]["status"]["conditions"])
        assert judged(moment) == verdict


LINKED = JudgingContext(
    logs=LogLinkSettings(
        kubernetes_enabled=True, templates=(LogTemplate(name="x", template_uris=("{{ .podName }}{{.y}}",)),)
    )
)
NOW = datetime(2026, 1, 1, 1, tzinfo=timezone.utc)
ODD = (
    *(None, True, False, 0, -1, 2**70, 1e308, float("nan"), float("inf"), "", "x", "\ud800", "\x00\x1b[31m"),
    *("9" * 5_000, "a" * 20_000, "2026-02-31T00:00:00Z", "0001-01-01T00:00:00+23:59"),
    *("9999-12-31T23:59:59-23:59", [], {}, [[]], [None], {"": {}}, ("tuple",), "True", "Failed", "Running"),
    "✗ t failed on rank 1 (w) after 1.0 s (nonsense)\nMessage:\n\n",
    *("0/0 nodes are available: , ,.", "resource gap: map[a:{{99 99} b:{{1 -99}]", "ImagePullBackOff"),
    "Evicted",
)


@pytest.mark.parametrize(("first", "cases"), [(0, 1_000), pytest.param(1, 100_000, marks=SOAK)])
def test_mutated_objects_are_judged(first, cases):
    dice = random.Random(first)
    done = 0
    for seed in range(first, first + cases):
        for moment in history(seed, steps=30):
            tree = deepcopy(moment.observed)
            for _ in range(dice.randint(1, 4)):
                mutate(tree, dice, ODD)
            verdict = judge(read_observed(tree), LINKED, dice.choice([NOW, moment.now]))
            assert verdict.phase is not Phase.UNDEFINED
            assert len(verdict.message) <= 1_000
            assert "backend_plugin" not in verdict.message
            json.dumps(verdict.info)
            verdict.message.encode()
            done += 1
            if done == cases:
                return
