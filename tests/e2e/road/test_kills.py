"""The server is killed with -9 at random moments: nothing is lost or doubled, every task ends right."""

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from propeller import Execution, Outcome

from e2e.road import tasks
from e2e.road.conftest import Road, ended, started

pytestmark = pytest.mark.timeout(300)

AT_ONCE = 6


def kill_at_random_moments(road: Road, folder: Path, kills: int, *, durable: bool) -> list[Outcome]:
    """Keep tasks coming while the server dies again and again; returns what became of all of them."""
    dice = random.Random(f"{kills} {durable}")
    executions: list[Execution] = []
    for _ in range(kills):
        alive = [execution for execution in executions if not execution.has_ended]
        for _ in range(AT_ONCE - len(alive)):
            seconds = dice.uniform(0, 2)
            executions.append(road.start(tasks.counts, folder=str(folder), seconds=seconds))
        time.sleep(dice.uniform(0, 1.5))
        road.served.restart()
    outcomes = [ended(execution, 120) for execution in executions]
    for execution, outcome in zip(executions, outcomes, strict=True):
        assert outcome.phase == "SUCCEEDED", (outcome, road.served.log.read_text()[-4000:])
        # Once in an attempt, at most: an attempt may be lost before its pod has started.
        starts = Counter(started(folder, execution))
        assert set(starts.values()) == {1}, starts
        assert outcome.outputs == {"o0": outcome.last.number}
        assert f"{outcome.last.number}.0" in starts
        assert not durable or len(outcome.attempts) == 1
        assert road.nothing_runs(execution)
    return outcomes


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "mortal"])
@pytest.mark.parametrize(
    "kills", [10, pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
def test_every_task_ends_right(
    serve: Callable[..., Road], tmp_path: Path, kills: int, *, durable: bool
) -> None:
    road = serve(*(["--durable"] if durable else []))
    outcomes = kill_at_random_moments(road, tmp_path, kills, durable=durable)

    assert len(outcomes) >= AT_ONCE
    assert road.served.starts == kills + 1
