"""The plan for the cluster: the manifests of one attempt, and the draft of its job."""

from collections.abc import Mapping
from typing import Final

import msgspec

from backend_plugin.core.job import ReplicaRole
from backend_plugin.core.values import Manifest

NO_UID: Final = "00000000-0000-0000-0000-000000000000"
"""The placeholder for the uid of a job that the cluster has not created."""


class JobDraft(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a job, such as pod templates, from which a PyTorchJob or TrainJob manifest is built."""

    dialect: str = ""
    """The kind of the job, such as TrainJob; PyTorchJob if empty."""
    metadata: Manifest
    pods: Mapping[ReplicaRole, Manifest]
    """The pod template of each role: ``{"metadata": ..., "spec": ...}``."""
    ttl_seconds: int | None = None
    """The time to live of the job after its end, in seconds; None if it is not deleted."""
    scheduling_policy: Manifest = msgspec.field(default_factory=dict)
    """The fields of the operator's scheduling policy, for pod groups that the operator creates."""
    jobset_annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The annotations that the scheduler needs on the JobSet of a TrainJob with initializers."""
    suspended: bool = False
    """True to create the job suspended, because a queue starts it."""
    max_disruptions: int | None = None
    """The limit of restarts of a TrainJob after disruptions; None if the server sets none."""
    initializer_images: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The images of initializers: the keys are ``dataset`` and ``model``."""
    initializer_requests: Mapping[str, str] = msgspec.field(default_factory=dict)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The manifests for one attempt, warnings, and the reasons for its kind of job and its scheduler."""

    dialect: str
    job: Manifest
    prerequisites: tuple[Manifest, ...] = ()
    """The objects that must exist before the job, which owns them afterwards."""
    companions: tuple[Manifest, ...] = ()
    """The objects, such as a PodGroup, to create after the job, which owns them.

    Their owner reference has the placeholder `NO_UID` instead of the uid of the job.
    """
    warnings: tuple[str, ...] = ()
    """Warnings about options that are accepted, as sentences."""
    reasons: tuple[str, ...] = ()
    """Sentences on why this kind of job and this scheduler, or no gang scheduler, were selected."""

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """The manifests in the order of their creation, with a placeholder for the uid of the job."""
        return (*self.prerequisites, self.job, *self.companions)
