"""Every setting, typed: Flyte's under Flyte's names in snake case, ours under `Settings.kfpytorch`.

A value that exists has been read by `reading` or is a default of the platform. What each setting does is
said where it is used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from backend_plugin.core.quantity import Quantity, parse
from backend_plugin.core.scheduling.platform import Ganging
from backend_plugin.core.settings.judging import Judging
from backend_plugin.core.settings.logs import Logs
from backend_plugin.core.settings.pod_security import PodSecurity
from backend_plugin.core.values import Manifest

# Without it the cluster autoscaler would move replicas of a running job.
_NOT_TO_BE_EVICTED: Final = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
# Without it nccl fails without a word on why.
TRAINING_ENV: Final = {"NCCL_DEBUG": "WARN"}
_ONE_CPU: Final = parse("1000m")
_ONE_GIB: Final = parse("1024Mi")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResources:
    """What the platform gives and allows a container, by Kubernetes' resource names."""

    defaults: Mapping[str, Quantity] = field(default_factory=dict)
    limits: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What Flyte's section has no name for."""

    task_resources: TaskResources = field(default_factory=TaskResources)
    """What propeller is given by admin's ``task_resources``, which connectors are not told."""
    training_env: Mapping[str, str] = field(default_factory=lambda: dict(TRAINING_ENV))
    """The environment of a container that trains, where the task says nothing of it; an empty value leaves
    one out. Names of the defaults that are not said keep their value."""
    ttl_after_finished: timedelta = timedelta(0)
    """How long a job is kept whose author does not say; zero: until its owner goes."""
    pod_template_namespace: str = "flyte"
    """Where PodTemplates are looked for when the task's namespace has none of that name."""
    pod_security: PodSecurity = field(default_factory=PodSecurity)
    """What authors may write into their pods."""
    gang: Ganging = field(default_factory=Ganging)
    """Who starts the replicas of a job all together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a platform; all defaults are Flyte's."""

    default_annotations: Mapping[str, str] = field(default_factory=lambda: dict(_NOT_TO_BE_EVICTED))
    default_labels: Mapping[str, str] = field(default_factory=dict)
    default_env_vars: Mapping[str, str] = field(default_factory=dict)
    """With those of ``default-env-vars-from-env`` already looked up."""
    default_env_from_configmaps: Sequence[str] = ()
    default_env_from_secrets: Sequence[str] = ()
    default_cpus: Quantity = _ONE_CPU
    default_memory: Quantity = _ONE_GIB
    default_tolerations: Sequence[Manifest] = ()
    default_node_selector: Mapping[str, str] = field(default_factory=dict)
    default_affinity: Manifest | None = None
    scheduler_name: str = ""
    interruptible_tolerations: Sequence[Manifest] = ()
    interruptible_node_selector: Mapping[str, str] = field(default_factory=dict)
    interruptible_node_selector_requirement: Manifest | None = None
    non_interruptible_node_selector_requirement: Manifest | None = None
    resource_tolerations: Mapping[str, Sequence[Manifest]] = field(default_factory=dict)
    image_pull_policy: str = ""
    gpu_device_node_label: str = "k8s.amazonaws.com/accelerator"
    gpu_partition_size_node_label: str = "k8s.amazonaws.com/gpu-partition-size"
    gpu_unpartitioned_node_selector_requirement: Manifest | None = None
    gpu_unpartitioned_toleration: Manifest | None = None
    gpu_resource_name: str = "nvidia.com/gpu"
    default_pod_security_context: Manifest | None = None
    default_security_context: Manifest | None = None
    enable_host_networking_pod: bool | None = None
    default_pod_dns_config: Manifest | None = None
    default_pod_template_name: str = ""
    add_tolerations_for_extended_resources: Sequence[str] = ()
    judging: Judging = field(default_factory=Judging)
    """How patient we are: Flyte's grace periods, and those that stand under ``kfpytorch.judging``."""
    logs: Logs = field(default_factory=Logs)
    """Flyte's ``plugins.logs``, which stands under ``kfpytorch.logs``."""
    kfpytorch: Ours = field(default_factory=Ours)
