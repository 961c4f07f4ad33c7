"""The two policies of a job that are a word: when replicas are restarted, which pods are removed.

`config` takes them as members or as text; nothing else is decided here.
"""

from enum import Enum


class RestartPolicy(Enum):
    """When the operator restarts a replica. The values are those of flyteidl's ``RestartPolicy``.

    Wherever a config takes one, it takes its name as text, too, in any case, and Kubernetes' names:
    ``"always"``, ``"FAILURE"``, ``"OnFailure"``, ``"never"``.
    """

    ALWAYS = 2
    """Also after success: the replica never completes."""
    FAILURE = 1
    """After a failure (Kubernetes: ``OnFailure``)."""
    NEVER = 0
    """Not at all; what Flyte assumes when nothing is said."""


class CleanPodPolicy(Enum):
    """Which pods the operator removes when the job is over. The values are those of flyteidl.

    Wherever a config takes one, it takes its name as text, too, in any case.
    """

    NONE = 0
    """None; what the operator assumes when nothing is said."""
    ALL = 2
    """All."""
    RUNNING = 1
    """Those that still run."""
