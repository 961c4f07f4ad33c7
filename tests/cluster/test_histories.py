"""Random histories: the embedded operator can reproduce the behaviour of the real training operator.

`KFPYTORCH_SEED=random` selects a random seed. `KFPYTORCH_REPLAY` names a file with histories to play instead,
for example one that a failed test wrote.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from history_replay import complaint, unexplained
from rig.control_plane import ControlPlane, Options
from rig.seed import SEED
from simulated_operator.parallel_histories import History, Stages, stages
from simulated_operator.random_histories import histories

WALKS, WITH_RESTART = 460, 60
CONTROLLERS = ("--controllers=garbage-collector-controller,resourcequota-controller",)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    options = Options(controllers=False, controller_manager=CONTROLLERS)
    with ControlPlane(tmp_path_factory.mktemp("histories"), options) as plane, stages(plane) as made:
        yield made


def test_embedded_operator_reproduces_each_real_history(
    stage: Stages, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(f" KFPYTORCH_SEED={SEED} ", end="", flush=True)
    found = [*stage.play(_to_play(has_restart=False)), *stage.play_with_restart(_to_play(has_restart=True))]
    failed = [each for each in found if _is_unexplained(each)]
    if failed:
        file = Path(tempfile.gettempdir()) / f"kfpytorch-histories-{SEED}.jsonl"
        file.write_text("".join(json.dumps(each) + "\n" for each in failed))
        complaints = "\n".join(complaint(each, _observed(each)) for each in failed)
        pytest.fail(f"{complaints}\n\nKFPYTORCH_SEED={SEED}\nKFPYTORCH_REPLAY={file}")


def _to_play(*, has_restart: bool) -> Sequence[History]:
    if "KFPYTORCH_REPLAY" not in os.environ:
        return histories(SEED, WITH_RESTART if has_restart else WALKS, has_restart=has_restart)
    lines = Path(os.environ["KFPYTORCH_REPLAY"]).read_text().splitlines()
    return [each for each in map(json.loads, lines) if _has_restart(each) is has_restart]


def _has_restart(history: History) -> bool:
    return any(step["do"]["op"] == "restart_operator" for step in history["steps"])


def _observed(history: History) -> Sequence[Mapping[str, Any]]:
    return [step["observed"] for step in history["steps"]]


def _is_unexplained(history: History) -> bool:
    """True if the observed states cannot be reproduced, even if all exact times are tried, which is slow."""
    observed = _observed(history)
    return all(unexplained(history, observed, closely=each) is not None for each in (False, True))
