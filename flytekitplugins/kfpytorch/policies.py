"""Enums for the policies of a job: when replicas are restarted, and which pods are deleted."""

from enum import Enum


class RestartPolicy(Enum):
    """When the operator restarts a replica. The values are those of flyteidl's ``RestartPolicy``.

    A config also accepts the name as text, in upper or lower case, and the names of Kubernetes:
    ``"always"``, ``"FAILURE"``, ``"OnFailure"``, ``"never"``.
    """

    ALWAYS = 2
    """Restart after a failure and after a success: the replica never completes."""
    FAILURE = 1
    """Restart after a failure (Kubernetes: ``OnFailure``)."""
    NEVER = 0
    """Never restart; the default of Flyte."""


class CleanPodPolicy(Enum):
    """The pods that the operator deletes when the job ends. The values are those of flyteidl.

    A config also accepts the name as text, in upper or lower case.
    """

    NONE = 0
    """Delete no pods; the default of the operator."""
    ALL = 2
    """Delete all pods."""
    RUNNING = 1
    """Delete the pods that still run."""
