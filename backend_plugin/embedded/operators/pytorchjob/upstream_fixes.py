"""Switches for the differences between the emulated operator and training-operator 1.9.3.

The text of each switch also describes training-operator 1.9.3, called "the operator". Some differences have
no switch: admission rejects a job without roles and a job with too many replicas, and no PodGroups or
HorizontalPodAutoscalers are created.
"""

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamFixes:
    """The switches. Each one enables a difference.

    With all switches off, the emulation behaves as training-operator 1.9.3, except for the differences
    without a switch.
    """

    created_is_written: bool = True
    """The condition `Created` is stored with the first status. The operator only keeps it in its cache, and
    loses it when a client changes the job."""
    deadline_has_a_timer: bool = True
    """A timer fails a job at its `activeDeadlineSeconds`. The operator checks only when an object changes."""
    recreations_count: bool = True
    """Recreated pods count towards `backoffLimit`. The operator counts container restarts only."""
    completion_is_timed: bool = True
    """Each finished job has a `completionTime`. The operator sets none for a job that fails by the restart
    policy `ExitCode`, and so never deletes it after its time to live."""
    ends_are_seen: bool = True
    """The failure of a job that reached a limit is stored before the job is deleted. The operator may delete
    the job in the same pass."""
    one_end: bool = True
    """A pass sets only one of `Succeeded` and `Failed`. The operator may report both."""
    only_wanted_pods: bool = True
    """Only required pods are created and counted. The operator also creates the missing pods with an index
    below that of a superfluous pod, creates one pod for zero replicas, and counts superfluous pods."""
    conditions_stand: bool = True
    """A condition with an unchanged status and reason keeps its timestamps. The operator may remove it and
    add it again in one pass, with new timestamps."""


DEFAULT: Final = UpstreamFixes()
UPSTREAM: Final = UpstreamFixes(**{each.name: False for each in fields(UpstreamFixes)})
