"""Switches for the differences between the controller and training-operator 1.9.3.

Each switch documents the behavior of the operator. Some differences have no switch: admission rejects a job
without roles and a job with too many replicas, and no PodGroups or HorizontalPodAutoscalers are created.
"""

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamFixes:
    """The enabled deviations.

    With all of them disabled, the controller behaves as training-operator 1.9.3.
    """

    created_is_written: bool = True
    """`Created` is stored with the first status. The operator only caches it, and an edit of the job loses
    it."""
    deadline_has_a_timer: bool = True
    """A timer fails a job at its `activeDeadlineSeconds`. The operator checks only when an object changes."""
    recreations_count: bool = True
    """Recreated pods count towards `backoffLimit`. The operator counts container restarts only."""
    completion_is_timed: bool = True
    """Each finished job has a `completionTime`. The operator sets none, and no expiry, for an exit code below
    128."""
    ends_are_seen: bool = True
    """A job that reached a limit is deleted after its failure is stored. The operator does not wait."""
    one_end: bool = True
    """A job that has succeeded does not fail in the same pass."""
    only_wanted_pods: bool = True
    """Pods are not created only to be deleted. The operator fills the gaps below superfluous pods, creates
    one pod for zero replicas, and counts superfluous pods as failed."""
    conditions_stand: bool = True
    """An unchanged condition keeps its timestamps."""


DEFAULT: Final = UpstreamFixes()
UPSTREAM: Final = UpstreamFixes(**{each.name: False for each in fields(UpstreamFixes)})
