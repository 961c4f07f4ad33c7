"""Tasks that run as TrainJobs, with real processes, from the template to the outputs."""

from collections.abc import Callable

import pytest

from e2e.propeller_flow import tasks
from e2e.propeller_flow.conftest import Road

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def trainer(serve: Callable[..., Road]) -> Road:
    return serve(settings={"kfpytorch": {"dialect": "trainjob"}})


def test_ranks_of_two_nodes_reduce(trainer):
    outcome = trainer.run(tasks.elastic_sum, value=10)

    assert outcome.phase == "SUCCEEDED", outcome
    assert outcome.outputs == {"o0": 21, "o1": {"world": 2, "listens": 1, "open": 0}}
    assert len(outcome.attempts) == 1


def test_jax_processes_on_two_nodes_have_consecutive_numbers(trainer):
    outcome = trainer.run(tasks.jax_numbers)

    assert outcome.phase == "SUCCEEDED", outcome
    assert outcome.outputs == {"o0": ["0", "1", "2", "3"]}
