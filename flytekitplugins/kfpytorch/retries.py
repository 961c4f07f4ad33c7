"""What ``num_retries`` means to the operator: a restart policy per role, one limit for the job.

The operator counts no retries per replica. It adds up the restarts of the containers of all pods
that run, in roles whose policy is not NEVER, and fails the job once that sum *reaches* a
``backoffLimit`` of 1 or more (training-operator v1, ``pkg/core/job.go``). So that no replica is
stopped before its last permitted restart, the limit is one above what all may use together.
"""

from typing import NamedTuple, Protocol

from flytekitplugins.kfpytorch.policies import RestartPolicy


class Role(Protocol):
    """What is asked of `Master` and `Worker` here."""

    restart_policy: RestartPolicy | str | None
    num_retries: int | None


class Restarts(NamedTuple):
    """What the operator is told about restarts; ``None`` where it is told nothing."""

    master: RestartPolicy | str | None
    worker: RestartPolicy | str | None
    backoff_limit: int | None


def from_roles(master: Role, worker: Role, workers: int) -> Restarts:
    """Policies and limit so that each replica may be restarted as often as its role says.

    A role that says no number takes the other's: when one rank dies, its peers lose their connection
    and fail with it. A role that says no policy is restarted after failure, or never if the number
    is 0.

    Args:
        master: The master's role.
        worker: The workers' role.
        workers: How many workers there are.

    Returns:
        What goes to the operator. Without any number: what the roles say, and no limit.
    """
    master_retries, worker_retries = _shared(master.num_retries, worker.num_retries)
    if master_retries is None or worker_retries is None:
        return Restarts(master.restart_policy, worker.restart_policy, None)
    restarts = Restarts(_policy(master, master_retries), _policy(worker, worker_retries), None)
    allowed = sum(
        replicas * retries
        for policy, replicas, retries in (
            (restarts.master, 1, master_retries),
            (restarts.worker, workers, worker_retries),
        )
        if policy is not RestartPolicy.NEVER
    )
    # 0 in all: nobody is restarted, or somebody without a limit (FAILURE said, and no number).
    return restarts._replace(backoff_limit=allowed + 1) if allowed else restarts


def _shared(one: int | None, other: int | None) -> tuple[int | None, int | None]:
    return (other if one is None else one), (one if other is None else other)


def _policy(role: Role, retries: int) -> RestartPolicy | str:
    if role.restart_policy is not None:
        return role.restart_policy
    return RestartPolicy.FAILURE if retries else RestartPolicy.NEVER


def contradiction(role: Role) -> str | None:
    """Why a role's number of retries and its restart policy do not go together, if so."""
    if role.num_retries is None or role.restart_policy is None:
        return None
    if role.num_retries == 0:
        if role.restart_policy is RestartPolicy.NEVER:
            return None
        return "restart_policy= asks for restarts and num_retries=0 for none; leave one of the two out"
    if role.restart_policy is RestartPolicy.NEVER:
        return "restart_policy=NEVER permits no retry; leave it out or write RestartPolicy.FAILURE"
    if role.restart_policy is RestartPolicy.ALWAYS:
        return "restart_policy=ALWAYS also restarts what succeeded, which counts; write RestartPolicy.FAILURE"
    return None
