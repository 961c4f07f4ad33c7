"""Encode a config as the `custom` field of a task template."""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from flyteidl.plugins.kubeflow import common_pb2, pytorch_pb2
from flytekit.core.resources import convert_resources_to_resource_model
from google.protobuf.json_format import MessageToDict, ParseDict

from flytekitplugins.kfpytorch.config import Elastic, Master, PyTorch, RunPolicy, Worker
from flytekitplugins.kfpytorch.config_base import encode_value
from flytekitplugins.kfpytorch.policies import CleanPodPolicy, RestartPolicy
from flytekitplugins.kfpytorch.problems import add_prefix

Custom: TypeAlias = dict[str, Any]
ResolveImage: TypeAlias = Callable[[Master | Worker], str]

# The c10d rendezvous needs no separate server: the agent of the first worker hosts it.
RDZV_BACKEND: Final = "c10d"


def encode_pytorch(config: PyTorch, resolve_image: ResolveImage = lambda role: str(role.image)) -> Custom:
    """Encode a valid `PyTorch` config, in which the number of workers is set, as protobuf JSON.

    The result contains no zero values, because proto3 does not distinguish them from unset fields. Only the
    options that `encode_extension` adds can contain a 0.
    `resolve_image` returns the image name of a role whose `image` is set (a name or an ``ImageSpec``).
    """
    restarts = config.restarts()
    master = _encode_replicas(config.master, resolve_image)
    worker = _encode_replicas(config.worker, resolve_image)
    master.replicas, worker.replicas = 1, config.workers() or 0
    for replicas, policy in ((master, restarts.master), (worker, restarts.worker)):
        if isinstance(policy, RestartPolicy):
            replicas.restart_policy = policy.value
    message = pytorch_pb2.DistributedPyTorchTrainingTask(
        master_replicas=master,
        worker_replicas=worker,
        run_policy=_encode_run_policy(config.run_policy, restarts.backoff_limit),
    )
    return {**MessageToDict(message), **encode_extension(config)}


def encode_elastic(config: Elastic, nproc_per_node: int | None = None) -> Custom:
    """Encode a valid `Elastic` config of a task that needs an operator, as protobuf JSON.

    The result contains no zero values, as in `encode_pytorch`. The argument `nproc_per_node` is required if
    the config contains a word such as ``"gpu"`` instead of the number of processes.
    """
    low, high = config.min_max_nodes()
    message = pytorch_pb2.DistributedPyTorchTrainingTask(
        worker_replicas=pytorch_pb2.DistributedPyTorchTrainingReplicaSpec(replicas=high),
        run_policy=_encode_run_policy(config.run_policy, getattr(config.run_policy, "backoff_limit", None)),
        elastic_config=pytorch_pb2.ElasticConfig(
            rdzv_backend=RDZV_BACKEND,
            min_replicas=low,
            max_replicas=high,
            nproc_per_node=int(nproc_per_node or config.nproc_per_node),
            max_restarts=config.max_restarts,
        ),
    )
    return {**MessageToDict(message), **encode_extension(config)}


def iter_ineffective_settings(config: PyTorch | Elastic) -> Iterator[str]:
    """Yield a sentence for each setting of `config` that has no effect.

    A request above its limit and a 0 in the run policy have no effect. If the task runs in an ordinary pod,
    options for a PyTorchJob or TrainJob, such as `gang`, have no effect, and only these are checked.
    """
    if isinstance(config, Elastic) and config.is_standalone():
        yield from _iter_job_options(config)
        return
    if isinstance(config, PyTorch):
        for name, role in (("master", config.master), ("worker", config.worker)):
            for excess in add_prefix(name, role.find_excess_requests()):
                yield f"{excess}: Flyte lowers the request to the limit"
    for name in ("ttl_seconds_after_finished", "active_deadline_seconds", "backoff_limit"):
        if getattr(config.run_policy, name, None) == 0:
            yield f"run_policy.{name}=0 has no effect: Flyte treats 0 as unset; the minimum is 1"


def _iter_job_options(config: Elastic) -> Iterator[str]:
    for name in ("run_policy", "gang", "train_job"):
        if getattr(config, name) is not None:
            yield f"{name}= has no effect with nnodes=1: one node is an ordinary pod, without the operator"


def _encode_replicas(role: Any, resolve_image: ResolveImage) -> Any:
    requests, limits = role.requests_and_limits()
    return pytorch_pb2.DistributedPyTorchTrainingReplicaSpec(
        image=resolve_image(role) if role.image else None,
        resources=convert_resources_to_resource_model(requests=requests, limits=limits).to_flyte_idl(),
    )


def _encode_run_policy(policy: object, backoff_limit: int | None) -> common_pb2.RunPolicy | None:
    if not isinstance(policy, RunPolicy):
        return None if backoff_limit is None else common_pb2.RunPolicy(backoff_limit=backoff_limit)
    clean = policy.clean_pod_policy
    return common_pb2.RunPolicy(
        clean_pod_policy=clean.value if isinstance(clean, CleanPodPolicy) else None,
        ttl_seconds_after_finished=policy.ttl_seconds_after_finished,
        active_deadline_seconds=policy.active_deadline_seconds,
        backoff_limit=backoff_limit,
    )


KEY: Final = "kfpytorch"
VERSION: Final = 1

_ROLE: Final = ("node_selector", "tolerations", "pod_template", "priority_class_name", "num_retries")


def encode_extension(config: PyTorch | Elastic) -> dict[str, Any]:
    """Return ``{"kfpytorch": ...}`` with the options that flytekit's own plugin lacks; ``{}`` if none is set.

    ``kfpytorch_idl/v1/task.proto`` defines the format; ``backend_plugin.core.decoding.extension`` reads it.
    """
    content = {name: encode_value(getattr(config, name)) for name in ("gang", "train_job")}
    if isinstance(config, PyTorch):
        for name, role in (("master", config.master), ("worker", config.worker)):
            options = {option: getattr(role, option) for option in _ROLE}
            given = {option: value for option, value in options.items() if value is not None}
            content[name] = encode_value(given) or None
    if all(part is None for part in content.values()):
        return {}
    from kfpytorch_idl.v1 import task_pb2  # Most configs do not need this module.

    message = ParseDict({"version": VERSION, **content}, task_pb2.TaskExtension())
    return {KEY: MessageToDict(message)}
