"""What waiting is made of: the vocabulary of those who recognise it and of those who tell of it.

Lives here: records. Does not: who says what; the cluster's own words are in `waiting`, a gang scheduler's in
its module of `scheduling.schedulers`.
"""

import enum
from datetime import datetime

import msgspec

from backend_plugin.core.quantity import Quantity
from kfpytorch_common.causes import Cause


class Stage(enum.IntEnum):
    """How far the waiting has come; the first is told first."""

    HELD = 0
    """By a queue or a quota: no pod may be placed yet."""
    UNPLACED = 1
    STARTING = 2
    """On a node, and not running yet."""
    RESTARTING = 3
    """It has run, and will run again."""


class Lack(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A resource of which there is too little, as far as somebody has said how much."""

    resource: str
    missing: Quantity | None = None
    """How much more would do."""
    asked: Quantity | None = None
    """By the whole gang, where its scheduler says so; else the job itself does."""
    free: Quantity | None = None
    held: Quantity | None = None
    """What the gang has of it already."""
    counts_own: bool = False
    """For whoever says what is missing, what its members hold is free for it."""
    upto: str = ""
    """The last role that was counted, with all before it; empty: all were."""


class Said(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a message of a scheduler says, in words that need no knowledge of it."""

    said: str = ""
    lacks: tuple[Lack, ...] = ()
    """Where there are any, they are the sentence."""
    queue: str = ""
    cause: Cause | None = None
    """None: no node has room for it, as far as this says."""
    never: bool = False
    """Waiting does not help."""
    vague: bool = False
    """An event about the one whom it is said to may say more."""
    gang: bool = True
    """It is said of the gang as a whole; else of the one whom it is said to."""
    follows: bool = False
    """It only follows from what others of the gang wait for."""


class Wait(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One thing that is waited for, by some of the replicas."""

    stage: Stage
    cause: Cause
    reason: str
    """A word of Kubernetes or of the scheduler: ``Unschedulable``."""
    said: str
    replicas: tuple[str, ...] = ()
    """Empty when the job waits as a whole."""
    since: datetime | None = None
    lacks: tuple[Lack, ...] = ()
    queue: str = ""
    ahead: int | None = None
    """How many others the queue lets go before it."""
    again: str = ""
    """That it has run before, where it has; before all else that is said."""
    whole: bool = False
    """It is the gang that waits, though single replicas told of it."""
    follows: bool = False
    """It only follows from what others wait for, who are told of before it."""
    never: bool = False
    vague: bool = False
    """It is not known yet which of several it is; see `Said`."""
    remedy: str = ""
    """What a person can do, where it is not what the cause says."""
    raw: str = ""
    """The very words, where `said` has others."""


class Note(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that is not as it was asked for, of which nobody says anything aloud."""

    said: str
    since: datetime | None = None
    """It is told once it has lasted; None: at once."""
