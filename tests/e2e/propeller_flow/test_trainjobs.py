"""Tasks that run as TrainJobs, with real processes, from the template to the outputs or the error."""

import importlib
import os
import re
import subprocess
from collections.abc import Callable

import pytest

from e2e.propeller_flow import tasks
from e2e.propeller_flow.conftest import Road, wait_for_outcome
from e2e.propeller_flow.server_process import KFPYTORCH

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def trainer(serve: Callable[..., Road]) -> Road:
    """Return a server that creates TrainJobs."""
    return serve(settings={"kfpytorch": {"dialect": "trainjob"}})


@pytest.mark.torch
def test_ranks_of_two_nodes_reduce(trainer: Road) -> None:
    outcome = trainer.run(tasks.elastic_sum, value=10)

    assert outcome.phase == "SUCCEEDED", outcome
    assert outcome.outputs == {"o0": 21, "o1": {"world": 2, "listens": 1, "open": 0}}
    assert len(outcome.attempts) == 1


def test_jax_processes_on_two_nodes_have_consecutive_numbers(trainer: Road) -> None:
    outcome = trainer.run(tasks.jax_numbers)

    assert outcome.phase == "SUCCEEDED", outcome
    assert outcome.outputs == {"o0": ["0", "1", "2", "3"]}


def test_exception_of_one_node_stops_the_other_nodes(trainer: Road) -> None:
    execution = trainer.start(tasks.raises_with_outputs)
    outcome = wait_for_outcome(execution)

    assert (outcome.phase, outcome.code) == ("FAILED", "TaskFailedWithError")
    assert "node-1 failed: ValueError: batch 7 has 31 labels for 32 images" in outcome.error
    assert trainer.nothing_runs(execution)


# The six ranks load torch at the same time.
@pytest.mark.soak
@pytest.mark.torch
def test_guide_program_has_a_log_for_each_node(trainer: Road) -> None:
    example = importlib.import_module("examples.06_torch_dist")
    execution = trainer.start(example.get_torch_dist)
    outcome = wait_for_outcome(execution, 150)

    assert outcome.phase == "SUCCEEDED", outcome.error
    assert outcome.outputs == {"o0": 6}
    ranks = [read_environments(trainer, execution.asked.execution, node) for node in range(3)]
    # The rendezvous decides which ranks a node has.
    for each in ranks:
        first = 2 * (min(each) // 2)
        assert each == {first: environment(first, local=0), first + 1: environment(first + 1, local=1)}
    assert sorted(rank for each in ranks for rank in each) == [0, 1, 2, 3, 4, 5]


def environment(rank: int, local: int) -> list[str]:
    return ["Using device: cpu", "WORLD_SIZE: 6", f"RANK: {rank}", f"LOCAL_RANK: {local}"]


def read_environments(road: Road, job: str, node: int) -> dict[int, list[str]]:
    """Return what `kfpytorch logs` prints for the ranks of one node."""
    command = [KFPYTORCH, "logs", job, "--node", str(node)]
    variables = {**os.environ, "KFPYTORCH_STATE_DIR": str(road.served.state)}
    done = subprocess.run(command, env=variables, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[int, list[str]] = {}
    for rank, line in re.findall(r"\[r(\d)\] (.+: \S+)$", done.stdout, re.MULTILINE):
        found.setdefault(int(rank), []).append(line)
    return found
