"""Encode a config as the `custom` field of a task template."""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from flyteidl.plugins.kubeflow import common_pb2, pytorch_pb2
from flytekit import ImageSpec
from flytekit.core.resources import convert_resources_to_resource_model
from google.protobuf.json_format import MessageToDict

from flytekitplugins.kfpytorch import extension_wire
from flytekitplugins.kfpytorch.config import Elastic, PyTorch, RunPolicy, get_backoff_limit
from flytekitplugins.kfpytorch.policies import CleanPodPolicy, RestartPolicy

Custom: TypeAlias = dict[str, Any]
ResolveImage: TypeAlias = Callable[[str | ImageSpec], str]

# The c10d rendezvous needs no separate server: the agent of the first worker hosts it.
RDZV_BACKEND: Final = "c10d"


def encode_pytorch(config: PyTorch, resolve_image: ResolveImage = str) -> Custom:
    """Encode a `PyTorch` config.

    Args:
        config: A config whose number of workers is set.
        resolve_image: Function that returns the image name for the author's value.

    Returns:
        Protobuf JSON: lowerCamel keys, without zero values.

    Raises:
        ConfigError: If the config was changed and is now invalid.
    """
    config.check()
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
    return {**MessageToDict(message), **extension_wire.encode(config)}


def encode_elastic(config: Elastic, nproc_per_node: int | None = None) -> Custom:
    """Encode an `Elastic` config for more than one node.

    Args:
        config: The config.
        nproc_per_node: The number of processes on each node. Required if the config has a word such as
            ``"gpu"`` instead of a number.

    Returns:
        Protobuf JSON: lowerCamel keys, without zero values.

    Raises:
        ConfigError: If the config was changed and is now invalid.
    """
    config.check()
    low, high = config.min_max_nodes()
    message = pytorch_pb2.DistributedPyTorchTrainingTask(
        worker_replicas=pytorch_pb2.DistributedPyTorchTrainingReplicaSpec(replicas=high),
        run_policy=_encode_run_policy(config.run_policy, get_backoff_limit(config.run_policy)),
        elastic_config=pytorch_pb2.ElasticConfig(
            rdzv_backend=RDZV_BACKEND,
            min_replicas=low,
            max_replicas=high,
            nproc_per_node=int(nproc_per_node or config.nproc_per_node),
            max_restarts=config.max_restarts,
        ),
    )
    return {**MessageToDict(message), **extension_wire.encode(config)}


def iter_ineffective_settings(config: PyTorch | Elastic) -> Iterator[str]:
    """Yield a sentence for each setting that has no effect: 0 in a run policy, or a job option for a pod."""
    if isinstance(config, Elastic) and config.is_standalone():
        for name in ("run_policy", "gang", "train_job"):
            if getattr(config, name) is not None:
                reason = "one node is an ordinary pod, without the operator"
                yield f"{name}= has no effect with nnodes=1: {reason}"
        return
    for name in ("ttl_seconds_after_finished", "active_deadline_seconds", "backoff_limit"):
        if getattr(config.run_policy, name, None) == 0:
            yield f"run_policy.{name}=0 has no effect: Flyte treats 0 as unset; the minimum is 1"


def _encode_replicas(role: Any, resolve_image: ResolveImage) -> Any:
    requests, limits = role.requests_and_limits()
    return pytorch_pb2.DistributedPyTorchTrainingReplicaSpec(
        image=resolve_image(role.image) if role.image else None,
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
