"""Tasks end correctly and start once per attempt, although the server is killed at random moments."""

import random
import time
from collections import Counter
from pathlib import Path

import pytest
from propeller import Execution

from e2e.propeller_flow import tasks
from e2e.propeller_flow.conftest import Road, started, wait_for_outcome

pytestmark = pytest.mark.timeout(300)

AT_ONCE = 3


def kill_at_random_moments(road: Road, folder: Path, kills: int) -> list[Execution]:
    """Start tasks while the server is killed repeatedly, also before it listens."""
    dice = random.Random(kills)
    executions: list[Execution] = []
    for _ in range(kills):
        alive = [execution for execution in executions if not execution.has_ended]
        for _ in range(AT_ONCE - len(alive)):
            seconds = dice.uniform(0, 2)
            executions.append(road.start(tasks.counts, folder=str(folder), seconds=seconds))
        time.sleep(dice.uniform(0, 2.5))
        road.served.kill()
        road.served.spawn()
    road.served.listen()
    return executions


@pytest.mark.parametrize(
    "durable", [pytest.param(True, marks=pytest.mark.soak, id="durable"), pytest.param(False, id="mortal")]
)
@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_each_task_succeeds_although_the_server_is_killed(serve, tmp_path, kills, *, durable):
    road = serve(*(["--durable"] if durable else []))
    executions = kill_at_random_moments(road, tmp_path, kills)

    for execution in executions:
        outcome = wait_for_outcome(execution, 180)
        assert outcome.phase == "SUCCEEDED", (outcome, road.served.log.read_text()[-4000:])
        assert outcome.outputs == {"o0": outcome.last.number}
        # At most one start per attempt. An attempt may be lost before its pod starts.
        starts = Counter(started(tmp_path, execution))
        assert set(starts.values()) == {1}, starts
        assert f"{outcome.last.number}.0" in starts
        created = [attempt for attempt in outcome.attempts if attempt.meta is not None]
        assert not durable or len(created) == 1, outcome
        assert road.nothing_runs(execution)
