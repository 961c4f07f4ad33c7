"""The pod of each replica.

Lives here: the order in which a pod is made, and nothing else; each step has a module of its own
(`pod_*`). The job around the pods is in `pytorchjob`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.core.job import ReplicaGroup, Run
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequest:
    """All that decides how the pods of a task look, whatever their role."""

    template: TaskTemplate
    """Read, never changed."""
    run: Run
    settings: Settings
    pod_templates: Sequence[Manifest] = ()
    """Every core/v1 PodTemplate that is known, of any namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodExtras:
    """What one role says beyond its resources and image; wins over everything else."""

    env: Mapping[str, str] = field(default_factory=dict)
    """Put first on the primary container, so that whatever the author says wins."""


def pod_templates(request: PodRequest, groups: Sequence[ReplicaGroup]) -> tuple[Manifest, ...]:
    """The pod template of each group, in the groups' order: ``{"metadata": ..., "spec": ...}``.

    Raises `InvalidTask` with every problem of every group.
    """
    raise NotImplementedError
