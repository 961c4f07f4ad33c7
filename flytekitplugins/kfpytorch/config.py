"""Configs of a distributed task: the classes that an author passes to ``@task(task_config=...)``."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, Final, TypeAlias

from flytekit import ImageSpec, PodTemplate, Resources

from flytekitplugins.kfpytorch import (
    data_sources,
    extension,
    frameworks,
    pod_options,
    quantities,
    retries,
    torchrun_options,
    validators,
)
from flytekitplugins.kfpytorch.config_base import Config, ConfigPart, build_config_reader, find_unknown_fields
from flytekitplugins.kfpytorch.extension import Gang, TrainJob
from flytekitplugins.kfpytorch.policies import CleanPodPolicy, RestartPolicy
from flytekitplugins.kfpytorch.problems import ConfigProblem, add_prefix, require_no_problems
from flytekitplugins.kfpytorch.validators import read_count
from kfpytorch_common.frameworks import MPI


@dataclass
class RunPolicy(ConfigPart):
    """The policy of the operator for the whole job: ``runPolicy`` of the PyTorchJob.

    The argument ``run_policy`` of `PyTorch` and `Elastic` also accepts a dict with the fields of `RunPolicy`.
    The value 0 has no effect in any of these fields, because Flyte's wire format (proto3) does not
    distinguish 0 from an unset field. The plugin logs a warning when a task is defined with 0.

    ``RunPolicy(...)`` does not check its arguments. `PyTorch` and `Elastic` raise an error if arguments of
    ``RunPolicy(...)`` are invalid.

    Args:
        clean_pod_policy: Pods that the operator deletes at the end of the job: a `CleanPodPolicy` or its
            name. Default: none. The kfpytorch backend deletes pending and running pods in any case.
        ttl_seconds_after_finished: Seconds between the end of the job and the deletion of the job object.
            Default: the setting ``ttl-after-finished`` of the platform.
        active_deadline_seconds: Maximum run time of the job in seconds. A job that runs longer fails.
            Default: no limit.
        backoff_limit: The job fails when the restarts of all running replicas together reach this number.
            Replicas with restart policy NEVER do not count. Default: no limit. To set a number for each
            replica, use ``num_retries`` of `Master` and `Worker`.
    """

    clean_pod_policy: Annotated[
        CleanPodPolicy | str | None, validators.build_enum_reader(CleanPodPolicy, aliases={})
    ] = None
    ttl_seconds_after_finished: Annotated[int | None, read_count] = None
    active_deadline_seconds: Annotated[int | None, read_count] = None
    backoff_limit: Annotated[int | None, read_count] = None


def _read_run_policy(value: object) -> object:
    """Return `value` if it is a valid `RunPolicy`, and convert a dict with its fields to a `RunPolicy`.

    Return None for an empty dict.
    """
    if not isinstance(value, Mapping):
        return build_config_reader(RunPolicy)(value)
    policy = RunPolicy(**{name: value[name] for name in RunPolicy.readers if name in value})
    require_no_problems([*policy.problems(), *find_unknown_fields(RunPolicy, value)])
    # As in flytekit's own plugin, an empty dict sets no run policy. RunPolicy() sets one with all defaults.
    return policy if value else None


_read_restart_policy: Final = validators.build_enum_reader(
    RestartPolicy, aliases={"onfailure": RestartPolicy.FAILURE}
)
_OptionalRunPolicy: TypeAlias = Annotated[RunPolicy | Mapping[str, Any] | None, _read_run_policy]
_OptionalGang: TypeAlias = Annotated[Gang | None, build_config_reader(Gang)]
_OptionalTrainJob: TypeAlias = Annotated[TrainJob | None, build_config_reader(TrainJob)]


@dataclass
class _Role(ConfigPart):
    """The fields that `Master` and `Worker` share."""

    image: Annotated[str | ImageSpec | None, validators.read_image] = None
    requests: Annotated[Resources | None, quantities.read_single_resources] = None
    limits: Annotated[Resources | None, quantities.read_single_resources] = None
    _: KW_ONLY
    resources: Annotated[Resources | None, quantities.read_paired_resources] = None
    num_retries: Annotated[int | None, read_count] = None
    node_selector: Annotated[Mapping[str, str] | None, pod_options.read_node_selector] = None
    tolerations: Annotated[Sequence[Mapping[str, Any]] | None, pod_options.read_tolerations] = None
    pod_template: Annotated[PodTemplate | Mapping[str, Any] | None, pod_options.read_pod_template] = None
    priority_class_name: Annotated[str | None, validators.read_priority_class] = None

    def _find_contradictions(self, sound: Set[str]) -> Iterator[ConfigProblem]:
        role: Any = self  # Only the subclasses define the field `restart_policy`.
        if {"restart_policy", "num_retries"} <= sound and (remedy := retries.find_contradiction(role)):
            yield ConfigProblem("num_retries", self.num_retries, remedy)
        given = (self.requests, self.limits, self.resources)
        twice = [name for name in ("requests", "limits") if getattr(self, name) is not None]
        if self.resources is not None and twice:
            remedy = f"sets the same as {' and '.join(twice)}=; leave one or the other out"
            yield ConfigProblem("resources", self.resources, remedy)
        elif all(each is None or isinstance(each, Resources) for each in given):
            yield from (each for each in self.find_excess_requests() if each.path.endswith(".gpu"))

    def find_excess_requests(self) -> Iterator[ConfigProblem]:
        """Yield a problem for each request above its limit.

        The config rejects only an excess request for GPUs. Flyte lowers any other request to its limit.
        """
        name = "requests" if self.resources is None else "resources"
        yield from add_prefix(name, quantities.find_excess_requests(*self.requests_and_limits()))

    def requests_and_limits(self) -> tuple[Resources | None, Resources | None]:
        """Return the requests and limits of a replica: those in ``resources``, else the fields themselves."""
        if self.resources is None:
            return self.requests, self.limits
        return quantities.split_resources(self.resources)


@dataclass
class Worker(_Role):
    """The worker replicas of a `PyTorch` task. Each is a pod, or a process in a local run.

    ``Worker(...)`` does not check its arguments. ``PyTorch(worker=...)`` raises an error if they are invalid.

    Args:
        image: Image of the workers: a name, or an ``ImageSpec`` that is built at registration.
            Default: the image of the task.
        requests: Resource requests of a worker, instead of those of the task. If they lack cpu or memory,
            Flyte's own backend plugin adds the default of the platform, not the value of the task.
        limits: Resource limits of a worker, instead of those of the task.
        replicas: The number of workers, without the master.
        restart_policy: When the operator restarts a worker: a `RestartPolicy` or its name. Default:
            never, or after a failure if ``num_retries`` permits restarts.
        resources: Requests and limits in one argument: one value for both, or ``(request, limit)``.
        num_retries: The number of times that the operator can restart each replica within one attempt of the
            task. (``@task(retries=)`` is the number of further attempts, each with a new job.) If only one of
            `Master` and `Worker` sets ``num_retries``, the number applies to both, because the peers of a
            failed rank fail, too. The operator counts restarts only for the whole job, so its limit is the
            sum for all replicas, and one replica can use the restarts of another. Restarts of init containers
            and sidecars count, too.
        node_selector: Labels that the Kubernetes node of a worker must have, in addition to those that the
            task requires. Only the kfpytorch backend reads ``node_selector``, ``tolerations``,
            ``pod_template`` and ``priority_class_name``.
        tolerations: Tolerations of a worker as in a manifest, in addition to those of the task.
        pod_template: A ``PodTemplate``, or a dict with ``metadata`` and ``spec``. It provides defaults for
            the pods of this role: values of the task take precedence. It cannot add a container: the backend
            rejects the task if this template has a container, such as a sidecar, that the ``pod_template`` of
            the task does not have.
        priority_class_name: The PriorityClass of a worker, instead of that of the task.
    """

    replicas: Annotated[int | None, read_count] = None
    restart_policy: Annotated[RestartPolicy | str | None, _read_restart_policy] = None


@dataclass
class Master(_Role):
    """The first replica of a `PyTorch` task: rank 0, which returns the result. A job has exactly one.

    ``Master(...)`` does not check its arguments. ``PyTorch(master=...)`` raises an error if they are invalid.

    Args:
        image: Image of the master: a name, or an ``ImageSpec`` that is built at registration.
            Default: the image of the task.
        requests: Resource requests of the master, instead of those of the task (see `Worker`).
        limits: Resource limits of the master, instead of those of the task.
        restart_policy: When the operator restarts the master: a `RestartPolicy` or its name. Default:
            never, or after a failure if ``num_retries`` permits restarts.
        resources: Requests and limits in one argument: one value for both, or ``(request, limit)``.
        num_retries: The number of times that the operator can restart each replica (see `Worker`).
        node_selector: Labels that the Kubernetes node of the master must have (see `Worker`).
        tolerations: Tolerations of the master (see `Worker`).
        pod_template: Defaults for the pod of the master (see `Worker`).
        priority_class_name: The PriorityClass of the master (see `Worker`).
    """

    restart_policy: Annotated[RestartPolicy | str | None, _read_restart_policy] = None


@dataclass
class PyTorch(Config):
    """A task that runs on one master and a number of workers: a PyTorchJob in a cluster.

    Args:
        master: Image, resources and restarts of the master.
        worker: Image, resources, restarts and number of the workers.
        run_policy: The policy of the operator for the whole job: a `RunPolicy` or a dict.
        num_workers: Deprecated; use ``worker=Worker(replicas=...)``. A task requires ``num_workers`` or
            ``worker.replicas``.
        increase_shared_mem: Mount shared memory on ``/dev/shm`` of the primary container, up to the memory
            limit of the pod. Data loaders with worker processes need shared memory.
            ``@task(shared_memory=...)`` takes precedence.
        gang: Options for starting all replicas together: a `Gang`. Only the kfpytorch backend reads ``gang``
            and ``train_job``.
        train_job: Options that only Kubeflow Trainer v2 supports: a `TrainJob`.

    Raises:
        ConfigError: If a value is invalid. The check runs again when a task is defined.
    """

    master: Annotated[Master, build_config_reader(Master)] = field(default_factory=Master)
    worker: Annotated[Worker, build_config_reader(Worker)] = field(default_factory=Worker)
    run_policy: _OptionalRunPolicy = None
    num_workers: Annotated[int | None, read_count] = None
    increase_shared_mem: Annotated[bool, validators.read_flag] = True
    _: KW_ONLY
    gang: _OptionalGang = None
    train_job: _OptionalTrainJob = None

    def workers(self) -> int | None:
        """Return the number of workers from ``num_workers`` or ``worker.replicas``, or `None` if unset."""
        replicas = self.worker.replicas
        return self.num_workers if self.num_workers or replicas is None else replicas

    def restarts(self) -> retries.RestartSettings:
        """Return the restart policies and the backoff limit for the operator."""
        restarts = retries.compute_restarts(self.master, self.worker, self.workers() or 0)
        limit = getattr(self.run_policy, "backoff_limit", None)
        return restarts._replace(backoff_limit=limit) if restarts.backoff_limit is None else restarts

    def _find_contradictions(self, sound: Set[str]) -> Iterator[ConfigProblem]:
        if {"worker", "num_workers"} <= sound and (workers := self.workers()) is not None:
            yield from self._find_size_contradictions(sound, workers)
        if not {"master", "worker"} <= sound:
            return
        if {"run_policy", "train_job"} <= sound:
            limit = getattr(self.run_policy, "backoff_limit", None)
            yield from retries.check_max_restarts(self.train_job, (self.master, self.worker), limit)
        if (self.master.num_retries, self.worker.num_retries) != (None, None):
            yield from self._find_retry_contradictions()

    def _find_size_contradictions(self, sound: Set[str], workers: int) -> Iterator[ConfigProblem]:
        nodes = 1 + workers
        if "gang" in sound:
            is_mpi = "train_job" in sound and frameworks.get_framework(self) == MPI
            least = nodes if is_mpi else 1
            yield from extension.check_min_member(self.gang, least, nodes)
        if "train_job" in sound:
            yield from extension.check_succeeded_nodes(self.train_job, nodes)
            yield from frameworks.check_launcher(self.train_job, "worker.replicas", workers, nodes)
        if self.num_workers and self.worker.replicas:
            remedy = f"worker.replicas={self.worker.replicas} sets it, too; leave num_workers out"
            yield ConfigProblem("num_workers", self.num_workers, remedy)

    def _find_retry_contradictions(self) -> Iterator[ConfigProblem]:
        limit = getattr(self.run_policy, "backoff_limit", None)
        if limit is not None:
            remedy = "num_retries= sets the limit already; leave one of the two out"
            yield ConfigProblem("run_policy.backoff_limit", limit, remedy)
        for name, role in (("master", self.master), ("worker", self.worker)):
            if role.num_retries is None and role.restart_policy is RestartPolicy.ALWAYS:
                remedy = "uses up the num_retries of the other role; write RestartPolicy.FAILURE"
                yield ConfigProblem(f"{name}.restart_policy", role.restart_policy, remedy)


@dataclass
class Elastic(Config):
    """A task that runs under torch's elastic launcher, as with ``torchrun``.

    With the integer ``nnodes=1``, the task runs in an ordinary pod (task type ``python-task``). With any
    other value, also the string ``"1"``, it runs as a PyTorchJob or TrainJob.

    Args:
        nnodes: The number of nodes: ``2``, ``"2"``, or a range ``"2:4"``.
        nproc_per_node: The number of processes on each node. ``"gpu"`` and ``"cpu"`` are the number of GPUs
            or processors of a node, as in ``torchrun``. ``"auto"`` is the number of GPUs, or of processors on
            a node without GPUs. For several nodes, the plugin replaces these words at registration by a
            number, which it derives from the resources of the task. If the task requests GPUs, a number of
            processes above the number of GPUs is an error.
        start_method: How the launcher starts the processes: ``"spawn"`` (they share nothing with the
            launcher) or ``"fork"`` (they start as copies of the launcher).
        monitor_interval: Maximum number of seconds between two checks whether the processes still run. It
            can be a fraction such as 0.5.
        max_restarts: The number of times that all processes restart together after one of them has failed.
        rdzv_configs: Configuration of torch's c10d rendezvous; timeouts in seconds. By default, the nodes of
            the task have 15 minutes to join, because images can be pulled and Kubernetes nodes added first.
            An unknown key that resembles a known one is an error; other unknown keys are passed to torch.
        increase_shared_mem: See `PyTorch`.
        run_policy: The policy of the operator for the whole job: a `RunPolicy` or a dict. It has no effect
            on an ordinary pod.
        gang: See `PyTorch`.
        train_job: See `PyTorch`.

    Raises:
        ConfigError: If a value is invalid. The check runs again when a task is defined.
    """

    nnodes: Annotated[int | str, torchrun_options.read_nodes] = 1
    nproc_per_node: Annotated[int | str, torchrun_options.read_processes] = 1
    start_method: Annotated[str, validators.build_choice_reader("spawn", "fork")] = "spawn"
    monitor_interval: Annotated[float, validators.read_seconds] = 5
    max_restarts: Annotated[int, read_count] = 0
    rdzv_configs: Annotated[dict[str, Any], torchrun_options.read_rendezvous] = field(
        default_factory=lambda: {"timeout": 900, "join_timeout": 900}
    )
    increase_shared_mem: Annotated[bool, validators.read_flag] = True
    run_policy: _OptionalRunPolicy = None
    _: KW_ONLY
    gang: _OptionalGang = None
    train_job: _OptionalTrainJob = None

    def _find_contradictions(self, sound: Set[str]) -> Iterator[ConfigProblem]:
        if {"nnodes", "gang"} <= sound:
            yield from extension.check_min_member(self.gang, *self.min_max_nodes())
        if {"run_policy", "train_job"} <= sound:
            yield from extension.check_succeeded_nodes(self.train_job, None)
            limit = getattr(self.run_policy, "backoff_limit", None)
            yield from retries.check_max_restarts(self.train_job, (), limit)
        if {"nnodes", "train_job"} <= sound and self.is_standalone():
            yield from data_sources.check_pod(self.train_job)
        if "train_job" in sound:
            yield from frameworks.check_elastic(self, sound)

    def min_max_nodes(self) -> tuple[int, int]:
        """Return the smallest and the largest number of nodes."""
        low, _, high = str(self.nnodes).partition(":")
        return int(low), int(high or low)

    def is_standalone(self) -> bool:
        """True if the task is an ordinary pod without the operator: ``nnodes`` is the number 1."""
        return self.nnodes == 1
