"""Translate ``num_retries`` into settings of the operator: a restart policy per role, and one job limit.

The operator does not count restarts per replica. It adds up the restarts of the containers of all running
pods, in roles with a policy other than NEVER. It fails the job once this sum reaches a ``backoffLimit`` of 1
or more (training-operator v1, ``pkg/core/job.go``). The limit is therefore one above the number of restarts
that all replicas may use together, so that each replica gets its last permitted restart.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from flytekitplugins.kfpytorch.policies import RestartPolicy
from flytekitplugins.kfpytorch.problems import ConfigProblem
from flytekitplugins.kfpytorch.validators import INT32_MAX

if TYPE_CHECKING:
    from flytekitplugins.kfpytorch.config import Master, Worker
    from flytekitplugins.kfpytorch.extension import TrainJob


class RestartSettings(NamedTuple):
    """The restart settings of a job for the operator. A setting that is None is not set in the job."""

    master: RestartPolicy | str | None
    worker: RestartPolicy | str | None
    backoff_limit: int | None


def compute_restarts(master: "Master", worker: "Worker", workers: int) -> RestartSettings:
    """Return restart policies and a limit with which each replica can restart ``num_retries`` times.

    A role without ``num_retries`` gets the number of the other role: when one rank fails, its peers lose
    their connection and fail, too. A role without a restart policy restarts after a failure, or never if its
    number is 0. If neither role has ``num_retries``, return the policies of the roles, and no limit.
    """
    master_retries = worker.num_retries if master.num_retries is None else master.num_retries
    worker_retries = master.num_retries if worker.num_retries is None else worker.num_retries
    if master_retries is None or worker_retries is None:
        return RestartSettings(master.restart_policy, worker.restart_policy, None)
    restarts = RestartSettings(
        master.restart_policy or _get_policy(master_retries),
        worker.restart_policy or _get_policy(worker_retries),
        None,
    )
    allowed = 0 if restarts.master is RestartPolicy.NEVER else master_retries
    allowed += 0 if restarts.worker is RestartPolicy.NEVER else workers * worker_retries
    # If `allowed` is 0, the job gets no limit. Usually both policies are NEVER then. But if a role with
    # another policy takes the 0 of the other role, the operator restarts its replicas without a limit.
    return restarts._replace(backoff_limit=min(allowed + 1, INT32_MAX)) if allowed else restarts


def _get_policy(retries: int) -> RestartPolicy:
    return RestartPolicy.FAILURE if retries else RestartPolicy.NEVER


def find_contradiction(role: "Master | Worker") -> str | None:
    """Return a message if the number of retries of a role contradicts its restart policy; otherwise None."""
    policy = None if role.num_retries is None else _get_policy(role.num_retries)
    if policy is None or role.restart_policy in (None, policy):
        return None
    return f"contradicts restart_policy={role.restart_policy}; leave one of the two out, or write {policy}"


def check_max_restarts(
    train_job: "TrainJob | None", roles: "Sequence[Master | Worker]", backoff_limit: int | None
) -> Iterator[ConfigProblem]:
    """Yield a problem if another setting contradicts ``max_restarts`` of `train_job`.

    The other settings are ``num_retries`` and ``restart_policy`` of each of `roles`, and `backoff_limit`.
    """
    max_restarts = train_job and train_job.max_restarts
    if max_restarts is None:
        return
    permitted = {RestartPolicy.FAILURE, RestartPolicy.ALWAYS} if max_restarts else {RestartPolicy.NEVER}
    policies = {role.restart_policy for role in roles} - {None}
    if any(role.num_retries is not None for role in roles):
        other = "num_retries="
    elif backoff_limit is not None:
        other = "run_policy.backoff_limit="
    elif policies - permitted:
        other = "restart_policy="
    else:
        return
    remedy = f"{other} sets the restarts, too; leave one of the two out"
    yield ConfigProblem("train_job.max_restarts", max_restarts, remedy)
