"""The options of a task's author that apply only to a TrainJob."""

from collections.abc import Mapping
from typing import Final

import msgspec

from kfpytorch_common.frameworks import TORCH

DISRUPTION: Final = "DisruptionTarget"
"""The type of the condition that a pod gets before the cluster removes it, for example for a preemption."""


class PodFailureRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule for failed pods of a TrainJob, with exit codes or pod conditions."""

    action: str
    exit_codes: tuple[int, ...] = ()
    """Exit codes of the training container, in increasing order."""
    operator: str = "In"
    pod_conditions: Mapping[str, str] = msgspec.field(default_factory=dict)


class DataSource(msgspec.Struct, frozen=True, kw_only=True):
    """A data set or a model that an initializer loads before the nodes start."""

    uri: str
    secret: str | None = None
    """The Secret whose keys become environment variables of the initializer."""
    env: Mapping[str, str] = msgspec.field(default_factory=dict)


class DataStorage(msgspec.Struct, frozen=True, kw_only=True):
    """The volume for the data set and the model: an existing `claim`, or a new volume of `size`."""

    size: str | None = None
    storage_class: str | None = None
    claim: str | None = None


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """The placement of all nodes of a TrainJob in one domain, such as a rack."""

    level: str
    """The label of Kubernetes nodes whose value is the name of their domain."""
    mode: str | None = None
    """``exclusive``, ``required`` or ``preferred``; see `get_mode` for None."""

    def get_mode(self, *, queued: bool) -> str:
        """Return the mode; the default is ``required`` for a job of Kueue (`queued`), else ``exclusive``."""
        return self.mode or ("required" if queued else EXCLUSIVE)


EXCLUSIVE: Final = "exclusive"
"""The mode of a `Topology` in which no other job runs in the same domain, such as a rack."""


class TrainJobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that apply only to a TrainJob."""

    runtime: str | None = None
    runtime_kind: str | None = None
    max_restarts: int | None = None
    """The maximum number of times that all nodes restart after failures."""
    packages: tuple[str, ...] = ()
    """The pip requirements that each node installs before it runs the task."""
    succeeded_indexes: str | None = None
    """The nodes whose success ends the job, such as ``0,2-4``; None for all nodes."""
    pod_failure_rules: tuple[PodFailureRule, ...] = ()
    sources: Mapping[str, DataSource] = msgspec.field(default_factory=dict)
    """The data set and the model, under the keys of `kfpytorch_common.data_sources.PATHS`."""
    storage: DataStorage = DataStorage()
    """The volume for the data set and the model; empty if there are neither, or if `runtime` provides it."""
    framework: str = TORCH
    topology: Topology | None = None
