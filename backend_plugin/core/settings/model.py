"""The types of all settings: Flyte's under Flyte's names in snake case, ours under `Settings.kfpytorch`."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from backend_plugin.core.dialects.table import DEFAULT
from backend_plugin.core.scheduling.gang_settings import GangSettings
from backend_plugin.core.settings.judging import JudgingSettings, LogLinkSettings
from backend_plugin.core.values import Manifest
from kfpytorch_common import data_sources
from kfpytorch_common.quantity import Quantity, parse

# Without this annotation the cluster autoscaler may move replicas of a running job.
_NOT_TO_BE_EVICTED: Final = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
# By default nccl fails without an explanation.
TRAINING_ENV: Final = {"NCCL_DEBUG": "WARN"}
_ONE_CPU: Final = parse("1000m")
_ONE_GIB: Final = parse("1024Mi")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResources:
    """The default and maximum resources of a container, by Kubernetes' resource names."""

    defaults: Mapping[str, Quantity] = field(default_factory=dict)
    limits: Mapping[str, Quantity] = field(default_factory=dict)


class PodSecurityMode(enum.Enum):
    """The treatment of a pod that violates the level "baseline" of the Pod Security Standards."""

    OFF = "off"
    WARN = "warn"
    """The job is created, and the server logs the fields."""
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSecuritySettings:
    """The treatment of authors' pods that violate the Pod Security level "baseline", by namespace."""

    mode: PodSecurityMode = PodSecurityMode.ENFORCE
    by_namespace: Mapping[str, PodSecurityMode] = field(default_factory=dict)
    service_accounts: Sequence[str] = ()
    """The service accounts that an author may name instead of the one that Flyte selected."""

    def get_mode(self, namespace: str) -> PodSecurityMode:
        """Return the mode for the tasks of a namespace."""
        return self.by_namespace.get(namespace, self.mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """The settings of this project, in the section ``plugins.k8s.kfpytorch``; Flyte does not have them."""

    task_resources: TaskResources = field(default_factory=TaskResources)
    """The values of flyteadmin's ``task_resources``, which connectors do not receive."""
    training_env: Mapping[str, str] = field(default_factory=lambda: dict(TRAINING_ENV))
    """The default environment of a training container; an empty value removes a variable. Built-in
    defaults that the setting does not mention keep their values."""
    ttl_after_finished: timedelta = timedelta(0)
    """The time that a finished job is kept, if its author sets none; zero: until its owner is deleted."""
    dialect: str = "auto"
    """The kind of jobs, in lower case; ``auto`` for the kind that the cluster supports."""
    dialect_by_domain: Mapping[str, str] = field(default_factory=dict)
    """The kinds of the jobs in some domains of Flyte."""
    dialect_by_namespace: Mapping[str, str] = field(default_factory=dict)
    """The kinds of the jobs in some namespaces; they take precedence over those of the domain."""
    dialect_by_project: Mapping[str, str] = field(default_factory=dict)
    """The kinds of the jobs of a project (``flytesnacks``), or of a project and domain
    (``flytesnacks/production``); they take precedence over the kinds in all other settings."""
    max_disruptions: int = 10
    """The maximum number of restarts of a TrainJob after disruptions; other restarts do not count."""
    dataset_initializer_image: str = "ghcr.io/kubeflow/trainer/dataset-initializer:v2.3.0"
    """The image that loads the data set of a TrainJob."""
    model_initializer_image: str = "ghcr.io/kubeflow/trainer/model-initializer:v2.3.0"
    """The image that loads the model of a TrainJob."""
    pod_template_namespace: str = "flyte"
    """The namespace to search for a PodTemplate that does not exist in the namespace of the task."""
    pod_security: PodSecuritySettings = field(default_factory=PodSecuritySettings)
    """The restrictions on the fields that authors write into their pods."""
    gang: GangSettings = field(default_factory=GangSettings)
    """The gang settings."""

    @property
    def initializer_images(self) -> Mapping[str, str]:
        """The images of initializers by the kind of data that they load: data set or model."""
        return {
            data_sources.DATASET: self.dataset_initializer_image,
            data_sources.MODEL: self.model_initializer_image,
        }

    @property
    def selects_dialect(self) -> bool:
        """True if a setting for the kind of job is ``auto`` or a kind other than the built-in default."""
        return self._list_dialects() != {DEFAULT.name.lower()}

    @property
    def detects_dialect(self) -> bool:
        """True if a setting for the kind of job is ``auto``: the operators of the cluster decide the kind."""
        return "auto" in self._list_dialects()

    def _list_dialects(self) -> set[str]:
        parts = (self.dialect_by_domain, self.dialect_by_namespace, self.dialect_by_project)
        return {self.dialect, *(kind for part in parts for kind in part.values())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of an installation of Flyte; those that Flyte has too have the same default values."""

    default_annotations: Mapping[str, str] = field(default_factory=lambda: dict(_NOT_TO_BE_EVICTED))
    default_labels: Mapping[str, str] = field(default_factory=dict)
    default_env_vars: Mapping[str, str] = field(default_factory=dict)
    """The environment of every container, with the resolved ``default-env-vars-from-env``."""
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
    judging: JudgingSettings = field(default_factory=JudgingSettings)
    """The timeouts: Flyte's grace periods, and those under ``kfpytorch.timeouts``."""
    logs: LogLinkSettings = field(default_factory=LogLinkSettings)
    """Flyte's ``plugins.logs``, located under ``kfpytorch.logs``."""
    kfpytorch: PluginSettings = field(default_factory=PluginSettings)
