"""What a check is, and what it finds.

Lives here: the shapes. Does not: any check; see `checks`.
"""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from backend_plugin.doctor.facts import Facts, Subject


class Level(enum.Enum):
    """How much a finding matters, the worst first."""

    ERROR = "error"
    """A job would not run."""
    WARNING = "warning"
    """A job may run, and may not."""
    UNKNOWN = "unknown"
    """It could not be looked at."""
    NOTE = "note"
    """Nothing is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Something that is not as it should be."""

    sentence: str
    """What is wrong, with its name and value; without a full stop."""
    remedy: str
    """What to do, as a command or values that can be pasted where there are any."""
    is_unknown: bool = False
    """True if the check could not look at this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One question to the facts."""

    id: str
    """Stable: scripts compare it."""
    level: Level
    proves: str
    """What holds where it finds nothing."""
    judge: Callable[[Facts], Iterable[Found]]
    needs: tuple[Subject, ...] = ()
    """What it cannot be judged without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check has found."""

    id: str
    level: Level
    sentence: str
    remedy: str
