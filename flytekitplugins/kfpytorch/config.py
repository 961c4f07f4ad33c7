"""What an author says about a distributed task.

A config checks itself when it is constructed, and again when a task is defined with it or written to
the wire, because it may have been changed in between. What a single value must look like is in
`checks`; what becomes of a config in `custom`.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final

from flytekit import ImageSpec, PodTemplate, Resources

from flytekitplugins.kfpytorch import checks, extension, quantities, retries
from flytekitplugins.kfpytorch.base import Config, part, unknown
from flytekitplugins.kfpytorch.checks import Reader, optional
from flytekitplugins.kfpytorch.extension import Gang, TrainJob
from flytekitplugins.kfpytorch.policies import CleanPodPolicy, RestartPolicy
from flytekitplugins.kfpytorch.problems import ConfigError, Problem, Wrong

__all__ = [
    "CleanPodPolicy",
    "ConfigError",
    "Elastic",
    "Gang",
    "Master",
    "PyTorch",
    "RestartPolicy",
    "RunPolicy",
    "TrainJob",
    "Worker",
]


@dataclass
class RunPolicy(Config):
    """What the operator does with the job as a whole: ``runPolicy`` of the PyTorchJob.

    Wherever a config takes one, it takes a dict of the same fields, too. Flyte's wire (proto3) cannot
    tell 0 from nothing said, so 0 in any of these fields has no effect; a task defined with one logs
    that.

    Args:
        clean_pod_policy: Which pods are removed at the end: a `CleanPodPolicy` or its name. Default:
            none. The backend removes pending and running pods in any case.
        ttl_seconds_after_finished: Seconds after the end at which the job object is removed. Default:
            never.
        active_deadline_seconds: Seconds since the start at which the job fails. Default: never.
        backoff_limit: The job fails when the restarts of all running replicas together reach this
            number; replicas whose restart policy is NEVER do not count. Default: no limit. See
            ``num_retries`` of `Master` and `Worker` for a number per replica.

    Raises:
        ConfigError: If a value cannot be meant (also when a task is defined, after changes).
    """

    clean_pod_policy: CleanPodPolicy | str | None = None
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None

    readers: ClassVar[Mapping[str, Reader]] = {
        "clean_pod_policy": optional(checks.member(CleanPodPolicy, aliases={})),
        "ttl_seconds_after_finished": optional(checks.count(low=0)),
        "active_deadline_seconds": optional(checks.count(low=0)),
        "backoff_limit": optional(checks.count(low=0)),
    }


def _run_policy(value: object) -> object:
    """Read a run policy, or a dict that says the same."""
    if not isinstance(value, Mapping):
        return part(RunPolicy)(value)
    policy = RunPolicy()
    vars(policy).update({item.name: value[item.name] for item in fields(RunPolicy) if item.name in value})
    if problems := [*policy.problems(), *unknown(RunPolicy, value)]:
        raise Wrong(*problems)
    # {} says nothing, as upstream has it; RunPolicy() says "a run policy of defaults".
    return policy if value else None


_JOB_READERS: Final[Mapping[str, Reader]] = {
    "gang": optional(part(Gang)),
    "train_job": optional(part(TrainJob)),
}


class _Role(Config):
    """What `Master` and `Worker` have in common."""

    image: str | ImageSpec | None
    requests: Resources | None
    limits: Resources | None
    restart_policy: RestartPolicy | str | None
    resources: Resources | None
    num_retries: int | None
    node_selector: Mapping[str, str] | None
    tolerations: Sequence[Mapping[str, Any]] | None
    pod_template: PodTemplate | Mapping[str, Any] | None
    priority_class_name: str | None

    readers: ClassVar[Mapping[str, Reader]] = {
        "image": optional(checks.image),
        "requests": optional(quantities.single_resources),
        "limits": optional(quantities.single_resources),
        "restart_policy": optional(
            checks.member(RestartPolicy, aliases={"onfailure": RestartPolicy.FAILURE})
        ),
        "resources": optional(quantities.paired_resources),
        "num_retries": optional(checks.count(low=0)),
        **extension.ROLE_READERS,
    }

    def _contradictions(self, sound: Set[str]) -> Iterator[Problem]:
        twice = [name for name in ("requests", "limits") if getattr(self, name) is not None]
        if self.resources is not None and twice:
            remedy = f"says what {' and '.join(twice)}= also say; leave one or the other out"
            yield Problem("resources", self.resources, remedy)
        elif {"requests", "limits", "resources"} <= sound:
            said = "requests" if self.resources is None else "resources"
            found = quantities.exceeding(*self.requests_and_limits())
            yield from (problem.within(said) for problem in found)
        if {"restart_policy", "num_retries"} <= sound and (remedy := retries.contradiction(self) or ""):
            yield Problem("num_retries", self.num_retries, remedy)

    def requests_and_limits(self) -> tuple[Resources | None, Resources | None]:
        """What a replica asks for and what it may use, however it was said."""
        if self.resources is None:
            return self.requests, self.limits
        return quantities.split(self.resources)


@dataclass
class Worker(_Role):
    """The replicas of a `PyTorch` task next to the master; each is a pod (or a process on this machine).

    Args:
        image: Image of the workers: a name, or an ``ImageSpec`` that is built at registration.
            Default: the task's.
        requests: Resources that a worker asks for, instead of the task's. Flyte's stock backend
            fills cpu and memory that are left out with platform defaults, not with the task's.
        limits: Resources that a worker may use, instead of the task's.
        replicas: How many workers there are, without the master.
        restart_policy: When the operator restarts a worker: a `RestartPolicy` or its name. Default:
            never, or after failure where ``num_retries`` asks for it.
        resources: Requests and limits at once: one value for both, or ``(request, limit)``.
        num_retries: How often the operator may restart each replica, in place, within one attempt of
            the task. (``@task(retries=)`` is Flyte's number of further attempts, each with a whole
            new job.) A role that says no number takes the other role's, because peers of a dead rank
            fail with it. The operator keeps one count for the whole job, so the replicas share what
            they are allowed together; restarts of init containers and sidecars count, too.
        node_selector: Labels that a worker's node must have, beside those that the task asks for. This
            and what follows is read by our backend only.
        tolerations: Taints that a worker bears, beside those that the task bears, as in a manifest.
        pod_template: A ``PodTemplate``, or a dict with ``metadata`` and ``spec``, below the task's own
            pod: what the task says wins.
        priority_class_name: The priority of a worker, instead of the task's.

    Raises:
        ConfigError: If a value cannot be meant (also when a task is defined, after changes).
    """

    image: str | ImageSpec | None = None
    requests: Resources | None = None
    limits: Resources | None = None
    replicas: int | None = None
    restart_policy: RestartPolicy | str | None = None
    resources: Resources | None = field(default=None, kw_only=True)
    num_retries: int | None = field(default=None, kw_only=True)
    node_selector: Mapping[str, str] | None = field(default=None, kw_only=True)
    tolerations: Sequence[Mapping[str, Any]] | None = field(default=None, kw_only=True)
    pod_template: PodTemplate | Mapping[str, Any] | None = field(default=None, kw_only=True)
    priority_class_name: str | None = field(default=None, kw_only=True)

    readers: ClassVar[Mapping[str, Reader]] = {
        **_Role.readers,
        "replicas": optional(checks.count(low=0)),
    }


@dataclass
class Master(_Role):
    """The first replica of a `PyTorch` task: rank 0, whose result is the task's. There is exactly one.

    Args:
        image: Image of the master: a name, or an ``ImageSpec`` that is built at registration.
            Default: the task's.
        requests: Resources that the master asks for, instead of the task's (see `Worker`).
        limits: Resources that the master may use, instead of the task's.
        restart_policy: When the operator restarts the master: a `RestartPolicy` or its name. Default:
            never, or after failure where ``num_retries`` asks for it.
        resources: Requests and limits at once: one value for both, or ``(request, limit)``.
        num_retries: How often the operator may restart each replica (see `Worker`).
        node_selector: Labels that the master's node must have (see `Worker`).
        tolerations: Taints that the master bears (see `Worker`).
        pod_template: What lies below the task's own pod (see `Worker`).
        priority_class_name: The priority of the master (see `Worker`).

    Raises:
        ConfigError: If a value cannot be meant (also when a task is defined, after changes).
    """

    image: str | ImageSpec | None = None
    requests: Resources | None = None
    limits: Resources | None = None
    restart_policy: RestartPolicy | str | None = None
    resources: Resources | None = field(default=None, kw_only=True)
    num_retries: int | None = field(default=None, kw_only=True)
    node_selector: Mapping[str, str] | None = field(default=None, kw_only=True)
    tolerations: Sequence[Mapping[str, Any]] | None = field(default=None, kw_only=True)
    pod_template: PodTemplate | Mapping[str, Any] | None = field(default=None, kw_only=True)
    priority_class_name: str | None = field(default=None, kw_only=True)


@dataclass
class PyTorch(Config):
    """A task that runs on one master and a number of workers: a PyTorchJob in a cluster.

    Args:
        master: The master's image, resources and restarts.
        worker: The same for the workers, and how many there are.
        run_policy: What the operator does with the job as a whole: a `RunPolicy` or a dict.
        num_workers: Deprecated; ``worker=Worker(replicas=...)``. One of the two must be given when a
            task is defined.
        increase_shared_mem: Mount memory on ``/dev/shm`` of the primary container, up to the pod's
            memory limit, as data loaders need it. ``@task(shared_memory=...)`` wins over it.
        gang: How all replicas start together: a `Gang`. This and what follows is read by our backend
            only.
        train_job: What only Kubeflow Trainer v2 knows: a `TrainJob`.

    Raises:
        ConfigError: If a value cannot be meant (also when a task is defined, after changes).
    """

    master: Master = field(default_factory=Master)
    worker: Worker = field(default_factory=Worker)
    run_policy: RunPolicy | Mapping[str, Any] | None = None
    num_workers: int | None = None
    increase_shared_mem: bool = True
    gang: Gang | None = field(default=None, kw_only=True)
    train_job: TrainJob | None = field(default=None, kw_only=True)

    readers: ClassVar[Mapping[str, Reader]] = {
        "master": part(Master),
        "worker": part(Worker),
        "run_policy": optional(_run_policy),
        "num_workers": optional(checks.count(low=0)),
        "increase_shared_mem": checks.flag,
        **_JOB_READERS,
    }

    def workers(self) -> int | None:
        """How many workers there are, however it was said; `None` if it was not."""
        return self.num_workers or (
            self.num_workers if self.worker.replicas is None else self.worker.replicas
        )

    def restarts(self) -> retries.Restarts:
        """What the operator is told about restarts."""
        restarts = retries.from_roles(self.master, self.worker, self.workers() or 0)
        if isinstance(self.run_policy, RunPolicy) and restarts.backoff_limit is None:
            return restarts._replace(backoff_limit=self.run_policy.backoff_limit)
        return restarts

    def _contradictions(self, sound: Set[str]) -> Iterator[Problem]:
        if {"worker", "num_workers", "gang"} <= sound and (workers := self.workers()) is not None:
            yield from extension.find_wrong_members(self.gang, 1, 1 + workers)
        if not {"master", "worker"} <= sound:
            return
        if "num_workers" in sound and self.num_workers and self.worker.replicas:
            remedy = f"worker.replicas={self.worker.replicas} says it, too; leave num_workers out"
            yield Problem("num_workers", self.num_workers, remedy)
        if (self.master.num_retries, self.worker.num_retries) != (None, None):
            yield from self._retry_contradictions(sound)

    def _retry_contradictions(self, sound: Set[str]) -> Iterator[Problem]:
        limit = self.run_policy.backoff_limit if isinstance(self.run_policy, RunPolicy) else None
        if limit is not None:
            remedy = "num_retries= sets the limit already; leave one of the two out"
            yield Problem("run_policy.backoff_limit", limit, remedy)
        for name, role in (("master", self.master), ("worker", self.worker)):
            if role.num_retries is None and role.restart_policy is RestartPolicy.ALWAYS:
                yield Problem(f"{name}.restart_policy", role.restart_policy, _ALWAYS_USES_UP)
        if "num_workers" in sound and (self.restarts().backoff_limit or 0) > checks.INT32_MAX:
            remedy = "for so many replicas is more than the operator can count (int32)"
            yield Problem("num_retries", self.worker.num_retries or self.master.num_retries, remedy)


_ALWAYS_USES_UP: Final = (
    "also restarts what succeeded and so uses up the other role's num_retries; write RestartPolicy.FAILURE"
)


@dataclass
class Elastic(Config):
    """A task that runs under torch's elastic launcher, as with ``torchrun``.

    One node is an ordinary pod (task type ``python-task``, only for ``nnodes=1`` as a number); more
    nodes are a PyTorchJob.

    Args:
        nnodes: How many nodes: ``2``, ``"2"``, or a range ``"2:4"``.
        nproc_per_node: The number of processes on each node. ``"gpu"``, ``"cpu"`` and ``"auto"`` are read as
            by ``torchrun``: the GPUs or processors that a node has, or GPUs and otherwise processors. A
            registration of several nodes takes the number from the resources of the task. More processes than
            the GPUs that the task requests are refused.
        start_method: How they are started: ``"spawn"`` (they share nothing with the launcher) or
            ``"fork"`` (they begin as copies of it).
        monitor_interval: Seconds between two looks at them, at most; fractions are fine.
        max_restarts: How often all processes are started again together after one failed.
        rdzv_configs: What torch's c10d rendezvous is told; time-outs in seconds. The default gives
            nodes 15 minutes to come together, for images that are pulled and nodes that are added.
            A key that torch does not know but that is near one is refused; others reach torch as
            they are.
        increase_shared_mem: See `PyTorch`.
        run_policy: What the operator does with the job as a whole: a `RunPolicy` or a dict. An
            ordinary pod has none.
        gang: See `PyTorch`.
        train_job: See `PyTorch`.

    Raises:
        ConfigError: If a value cannot be meant (also when a task is defined, after changes).
    """

    nnodes: int | str = 1
    nproc_per_node: int | str = 1
    start_method: str = "spawn"
    monitor_interval: float = 5
    max_restarts: int = 0
    rdzv_configs: dict[str, Any] = field(default_factory=lambda: {"timeout": 900, "join_timeout": 900})
    increase_shared_mem: bool = True
    run_policy: RunPolicy | Mapping[str, Any] | None = None
    gang: Gang | None = field(default=None, kw_only=True)
    train_job: TrainJob | None = field(default=None, kw_only=True)

    readers: ClassVar[Mapping[str, Reader]] = {
        "nnodes": checks.nodes,
        "nproc_per_node": checks.processes,
        "start_method": checks.one_of("spawn", "fork"),
        "monitor_interval": checks.seconds,
        "max_restarts": checks.count(low=0),
        "rdzv_configs": checks.rendezvous,
        "increase_shared_mem": checks.flag,
        "run_policy": optional(_run_policy),
        **_JOB_READERS,
    }

    def _contradictions(self, sound: Set[str]) -> Iterator[Problem]:
        if {"nnodes", "gang"} <= sound:
            yield from extension.find_wrong_members(self.gang, *self.min_max_nodes())

    def min_max_nodes(self) -> tuple[int, int]:
        """The smallest and the largest number of nodes."""
        low, _, high = str(self.nnodes).partition(":")
        return int(low), int(high or low)

    def is_standalone(self) -> bool:
        """Whether the task is an ordinary pod, without the operator: one node, said as a number."""
        return self.nnodes == 1
