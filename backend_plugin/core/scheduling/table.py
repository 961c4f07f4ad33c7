"""Every gang scheduler that there is an adapter for, by the name that the settings have for it.

To add one, add a module to `schedulers` and a row. Of two that a cluster shows alike the upper one is chosen.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from backend_plugin.core.observed import PodGroup
from backend_plugin.core.scheduling.adapter import Adapter
from backend_plugin.core.scheduling.schedulers import coscheduling, in_tree, kai, kueue, volcano, yunikorn
from backend_plugin.core.scheduling.words import Words

Table: TypeAlias = Mapping[str, Mapping[str, Adapter]]
"""By the name of the scheduler, then by the style; one that is used in one way only has the style ``""``."""

ADAPTERS: Final[Table] = {
    "yunikorn": yunikorn.STYLES,
    "volcano": volcano.STYLES,
    "coscheduling": coscheduling.STYLES,
    "kai": kai.STYLES,
    "kueue": kueue.STYLES,
}

WORDS: Final[Sequence[Words]] = (
    *(next(iter(styles.values())).words for styles in ADAPTERS.values()),
    in_tree.WORDS,
)
"""What each of them says, whichever the platform has: a job may be older than the settings."""

IN_TREE: Final = "in-tree"
"""What people may ask for, and cannot have: the gangs of Kubernetes itself."""


def may_be_of_gang(name: str) -> bool:
    """Whether an object of that name may hold a place for a gang, or be its group."""
    return bool(name) and (is_place(name) or job_of_group(name) != name)


def is_place(name: str) -> bool:
    """Whether pods are called so that hold places."""
    return any(words.places is not None and words.places.fullmatch(name) for words in WORDS)


def job_of_group(name: str) -> str:
    """The job whose group is called so; the same name for most."""
    for words in WORDS:
        if words.groups is not None and (match := words.groups.fullmatch(name)) is not None:
            return match["job"]
    return name


def is_controlled(group: PodGroup) -> bool:
    """Whether it is a controller that writes to it, and not whoever places the pods."""
    return any(group.api == words.api and words.controlled for words in WORDS)


def is_queued(group: PodGroup) -> bool:
    """Whether it stands in a queue, in which others are before it."""
    return bool(group.queue) and any(group.api == words.api and words.queued(group) for words in WORDS)
