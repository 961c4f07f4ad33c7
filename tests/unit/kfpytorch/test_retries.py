"""Restart limits per replica role, for an operator that counts all restarts together."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flytekitplugins.kfpytorch import Elastic, Master, PyTorch, RestartPolicy, TrainJob, Worker
from flytekitplugins.kfpytorch.problems import ConfigError
from flytekitplugins.kfpytorch.retries import RestartSettings

ALWAYS, FAILURE, NEVER = RestartPolicy.ALWAYS, RestartPolicy.FAILURE, RestartPolicy.NEVER


def operator_fails_job(restarts: dict[RestartPolicy, int], limit: int | None) -> bool:
    """Return the result of PastBackoffLimit in training-operator v1 (reference/pytorchjob.md 2.7)."""
    total = sum(count for policy, count in restarts.items() if policy is not NEVER)
    return limit is not None and (total > 0 if limit == 0 else total >= limit)


@pytest.mark.parametrize(
    ("master", "worker", "expected"),
    [
        # Without num_retries, the policies stay unchanged.
        (Master(), Worker(replicas=4), (None, None, None)),
        (Master(restart_policy=ALWAYS), Worker(replicas=4), (ALWAYS, None, None)),
        # The number of one role applies to both roles, because a failed rank ends its peers.
        (Master(num_retries=3), Worker(replicas=4), (FAILURE, FAILURE, 16)),
        (Master(), Worker(replicas=4, num_retries=3), (FAILURE, FAILURE, 16)),
        (Master(), Worker(replicas=4, num_retries=2**31 - 1), (FAILURE, FAILURE, 2**31 - 1)),
        # A role that never restarts does not count.
        (Master(num_retries=3), Worker(replicas=4, restart_policy=NEVER), (FAILURE, NEVER, 4)),
        (Master(num_retries=0), Worker(replicas=4, num_retries=2), (NEVER, FAILURE, 9)),
        # Policies that agree with the numbers are valid.
        (Master(restart_policy=FAILURE, num_retries=1), Worker(replicas=1), (FAILURE, FAILURE, 3)),
        (Master(restart_policy=NEVER, num_retries=0), Worker(replicas=1), (NEVER, NEVER, None)),
        # 0 means no restart and needs no limit. The explicit policy of the other role then has no limit.
        (Master(num_retries=0), Worker(replicas=4), (NEVER, NEVER, None)),
        (Master(num_retries=0), Worker(replicas=4, restart_policy=FAILURE), (NEVER, FAILURE, None)),
    ],
)
def test_retries_of_roles_set_restart_policies_and_a_backoff_limit(
    master: Master, worker: Worker, expected: tuple[Any, ...]
) -> None:
    assert PyTorch(master, worker).restarts() == RestartSettings(*expected)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_each_replica_may_restart_as_often_as_its_role_permits(
    master: int, worker: int, replicas: int
) -> None:
    restarts = PyTorch(Master(num_retries=master), Worker(replicas=replicas, num_retries=worker)).restarts()
    assert (restarts.master is NEVER, restarts.worker is NEVER) == (master == 0, worker == 0)
    permitted = master + replicas * worker
    assert not operator_fails_job({FAILURE: permitted}, restarts.backoff_limit)
    if restarts.backoff_limit is not None:
        assert operator_fails_job({FAILURE: permitted + 1}, restarts.backoff_limit)


def test_backoff_limit_of_a_run_policy_is_kept() -> None:
    config = PyTorch(worker=Worker(replicas=2, restart_policy=FAILURE), run_policy={"backoff_limit": 7})
    assert config.restarts() == RestartSettings(None, FAILURE, 7)


FIVE = TrainJob(max_restarts=5)
NO_RESTARTS = TrainJob(max_restarts=0)


@pytest.mark.parametrize(
    ("role", "policy", "train_job", "words"),
    [
        ({"num_retries": 5}, None, FIVE, "num_retries"),
        ({}, {"backoff_limit": 5}, FIVE, "run_policy.backoff_limit"),
        ({"restart_policy": NEVER}, None, FIVE, "restart_policy="),
        ({"restart_policy": FAILURE}, None, NO_RESTARTS, "restart_policy="),
    ],
)
def test_conflicting_restart_limits_of_a_train_job_are_rejected(
    role: Any, policy: Any, train_job: TrainJob, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        PyTorch(worker=Worker(replicas=2, **role), run_policy=policy, train_job=train_job)
    assert f"train_job.max_restarts={train_job.max_restarts}: {words}" in str(caught.value)
    Elastic(nnodes=2, max_restarts=3, train_job=FIVE)
    with pytest.raises(ConfigError, match=r"train_job\.max_restarts=5"):
        Elastic(nnodes=2, run_policy={"backoff_limit": 1}, train_job=FIVE)


@pytest.mark.parametrize(
    ("policy", "train_job"),
    [(None, FIVE), (None, NO_RESTARTS), (FAILURE, FIVE), (NEVER, NO_RESTARTS), (FAILURE, TrainJob())],
)
def test_restart_policy_may_agree_with_the_restarts(policy: Any, train_job: TrainJob) -> None:
    PyTorch(worker=Worker(replicas=2, restart_policy=policy), train_job=train_job)
