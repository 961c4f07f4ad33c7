"""Where the controller does better than training-operator 1.9.3, which it otherwise repeats.

Lives here: one switch a deviation, with what the operator does instead. Does not: the doing. Beside them,
admission refuses a job without roles, which the operator never looks at, and one of more pods than a pass can
hold; and nobody here makes PodGroups or HorizontalPodAutoscalers.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviations:
    """What is done better; nothing of it is training-operator 1.9.3, to the bug."""

    created_is_written: bool = True
    """`Created` is part of the first status. The operator keeps it in its cache, where an edit loses it."""
    deadline_has_a_timer: bool = True
    """`activeDeadlineSeconds` ends a job in time. The operator looks only when something else happens."""
    recreations_count: bool = True
    """Pods made anew count towards `backoffLimit`. The operator counts restarts in place only."""
    completion_is_timed: bool = True
    """Every end has a `completionTime`. That of an exit code below 128 has none, and no expiry."""
    ends_are_seen: bool = True
    """A job that reached a limit is deleted after its failure was written. The operator does not wait."""
    one_end: bool = True
    """A job that has succeeded does not fail in the same pass."""
    only_wanted_pods: bool = True
    """No pod is made to be deleted. The operator fills the gaps below pods that are too many, and makes
    one for zero replicas. Nor do pods that are too many count as failed."""
    suspension_is_no_failure: bool = True
    """Pods that a suspension left behind are not those of the resumed job. The operator counts them, so that
    a job resumed too early fails, or succeeds."""
    rdzv_conf_may_be_empty: bool = True
    """An empty `rdzvConf` says nothing. The operator panics, for ever."""
    standalone_is_a_number: bool = True
    """`PET_STANDALONE` is 1. The operator's empty text ends torchrun."""
    conditions_stand: bool = True
    """A condition that a pass finds as it was is not written anew, with another time."""
    selectors_are_whole: bool = True
    """Each role has its `selector`. The operator forgets that of a role behind a Master that succeeded."""


DEFAULT: Final = Deviations()
UPSTREAM: Final = Deviations(
    created_is_written=False,
    deadline_has_a_timer=False,
    recreations_count=False,
    completion_is_timed=False,
    ends_are_seen=False,
    one_end=False,
    only_wanted_pods=False,
    suspension_is_no_failure=False,
    rdzv_conf_may_be_empty=False,
    standalone_is_a_number=False,
    conditions_stand=False,
    selectors_are_whole=False,
)
