"""How many restarts each replica gets from an operator that counts them all together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flytekitplugins.kfpytorch import Master, PyTorch, RestartPolicy, Worker
from flytekitplugins.kfpytorch.retries import Restarts

ALWAYS, FAILURE, NEVER = RestartPolicy.ALWAYS, RestartPolicy.FAILURE, RestartPolicy.NEVER


def operator_fails_job(restarts: dict[RestartPolicy, int], limit: int | None) -> bool:
    """training-operator v1: PastBackoffLimit (reference/pytorchjob.md 2.7)."""
    total = sum(count for policy, count in restarts.items() if policy is not NEVER)
    return limit is not None and (total > 0 if limit == 0 else total >= limit)


@pytest.mark.parametrize(
    ("master", "worker", "expected"),
    [
        # Nobody says a number: what was said goes through.
        (Master(), Worker(replicas=4), Restarts(None, None, None)),
        (Master(restart_policy=ALWAYS), Worker(replicas=4), Restarts(ALWAYS, None, None)),
        # One role says it for both, because a dead rank takes its peers along.
        (Master(num_retries=3), Worker(replicas=4), Restarts(FAILURE, FAILURE, 16)),
        (Master(), Worker(replicas=4, num_retries=3), Restarts(FAILURE, FAILURE, 16)),
        (Master(num_retries=3), Worker(replicas=0), Restarts(FAILURE, FAILURE, 4)),
        # Each says its own.
        (Master(num_retries=1), Worker(replicas=4, num_retries=2), Restarts(FAILURE, FAILURE, 10)),
        # Who is never restarted does not count.
        (Master(num_retries=3), Worker(replicas=4, restart_policy=NEVER), Restarts(FAILURE, NEVER, 4)),
        (Master(num_retries=0), Worker(replicas=4, num_retries=2), Restarts(NEVER, FAILURE, 9)),
        # Policies that say the same as the numbers do no harm.
        (Master(restart_policy=FAILURE, num_retries=1), Worker(replicas=1), Restarts(FAILURE, FAILURE, 3)),
        (Master(restart_policy=NEVER, num_retries=0), Worker(replicas=1), Restarts(NEVER, NEVER, None)),
        # 0 is no restart, which needs no limit; one that is asked for elsewhere stays without.
        (Master(num_retries=0), Worker(replicas=4), Restarts(NEVER, NEVER, None)),
        (Master(num_retries=0), Worker(replicas=4, restart_policy=FAILURE), Restarts(NEVER, FAILURE, None)),
    ],
)
def test_roles_become_policies_and_a_limit(master: Master, worker: Worker, expected: Restarts) -> None:
    assert PyTorch(master, worker).restarts() == expected


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_each_replica_may_be_restarted_as_often_as_its_role_says(
    master: int, worker: int, replicas: int
) -> None:
    told = PyTorch(Master(num_retries=master), Worker(replicas=replicas, num_retries=worker)).restarts()
    assert (told.master is NEVER, told.worker is NEVER) == (master == 0, worker == 0)
    permitted = master + replicas * worker
    assert not operator_fails_job({FAILURE: permitted}, told.backoff_limit)
    if told.backoff_limit is not None:
        assert operator_fails_job({FAILURE: permitted + 1}, told.backoff_limit)


def test_the_limit_of_a_run_policy_stays() -> None:
    config = PyTorch(worker=Worker(replicas=2, restart_policy=FAILURE), run_policy={"backoff_limit": 7})
    assert config.restarts() == Restarts(None, FAILURE, 7)
