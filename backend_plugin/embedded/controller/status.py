"""A job's status while a pass works on it: the operator's rules of which condition replaces which.

Lives here: the status and its arithmetic. Does not: what is to be said.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from backend_plugin.core.reading import entries, moment, number, section, text
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.embedded.objects import stamp

CREATED: Final = "Created"
RUNNING: Final = "Running"
RESTARTING: Final = "Restarting"
SUSPENDED: Final = "Suspended"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

_REASON: Final = "PyTorchJob"
# Of these two a job shows one: the newer removes the older.
_EXCLUSIVE: Final[Mapping[str, str]] = {RUNNING: RESTARTING, RESTARTING: RUNNING}
_COUNTS: Final = ("active", "succeeded", "failed", "restarts")


def reason(word: str) -> str:
    """A condition's or an event's reason."""
    return _REASON + word


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One role's numbers."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    restarts: int = 0
    """How often its pods were made anew, and their containers before that. No field of the operator's."""
    selector: str = ""

    def manifest(self) -> Manifest:
        """As it is stored; zeros are left out."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        said = {name: count for name, count in counts.items() if count}
        return {**said, **({"selector": self.selector} if self.selector else {})}


@dataclass(slots=True, kw_only=True)
class Status:
    """The status so far; `now` is when it is changed."""

    now: datetime
    conditions: list[Manifest] = field(default_factory=list)
    replicas: dict[str, ReplicaStatus] = field(default_factory=dict)
    times: dict[str, JsonValue] = field(default_factory=dict)
    """`startTime`, `completionTime`, `lastReconcileTime`."""

    @classmethod
    def read(cls, stored: Manifest, now: datetime) -> "Status":
        """The status as it is stored."""
        replicas = section(stored, "replicaStatuses")
        times = ("startTime", "completionTime", "lastReconcileTime")
        return cls(
            now=now,
            conditions=list(entries(stored, "conditions")),
            replicas={name: _replica_status(section(replicas, name)) for name in replicas},
            times={name: stored[name] for name in times if stored.get(name)},
        )

    def manifest(self) -> Manifest:
        """As it is stored; what is empty is left out."""
        replicas = {name: self.replicas[name].manifest() for name in sorted(self.replicas)}
        said: Manifest = {"conditions": self.conditions, "replicaStatuses": replicas}
        return {**{name: value for name, value in said.items() if value}, **self.times}

    def says(self, kind: str) -> bool:
        """Whether the condition of that type holds."""
        return any(each.get("type") == kind and each.get("status") == "True" for each in self.conditions)

    @property
    def is_finished(self) -> bool:
        """Whether the job is over, for better or worse."""
        return self.says(SUCCEEDED) or self.says(FAILED)

    def say(self, kind: str, message: str, *, word: str = "", holds: str = "True") -> None:
        """Write a condition, unless the job has failed, or says just that already.

        Args:
            kind: The condition's type.
            message: Its sentence.
            word: Its reason's word, where that is not its type.
            holds: Its status.
        """
        old = next((each for each in self.conditions if each.get("type") == kind), {})
        is_said = (old.get("status"), old.get("reason")) == (holds, reason(word or kind))
        if self.says(FAILED) or is_said:
            return
        at = stamp(self.now)
        new = {
            "type": kind,
            "status": holds,
            "reason": reason(word or kind),
            "message": message,
            "lastUpdateTime": at,
            "lastTransitionTime": old["lastTransitionTime"] if old.get("status") == holds else at,
        }
        self.conditions = [*_beside(kind, self.conditions), new]

    def begin(self) -> None:
        """The job starts now, or again."""
        self.times["startTime"] = stamp(self.now)

    def complete(self) -> None:
        """The job ends now, unless it has."""
        self.times.setdefault("completionTime", stamp(self.now))

    def moment(self, name: str, *, after: int = 0) -> datetime | None:
        """One of the times, so many seconds later."""
        found = moment(self.times, name)
        return None if found is None else found + timedelta(seconds=after)

    def count(self, role: str, **more: int) -> None:
        """Add to one role's numbers."""
        old = self.replicas[role]
        self.replicas[role] = replace(old, **{name: getattr(old, name) + by for name, by in more.items()})


def _replica_status(stored: Manifest) -> ReplicaStatus:
    counts = {name: number(stored, name) or 0 for name in _COUNTS}
    return ReplicaStatus(**counts, selector=text(stored, "selector"))


def _beside(kind: str, conditions: list[Manifest]) -> list[Manifest]:
    """What stays when a condition of that type is added."""
    kept = [each for each in conditions if each.get("type") not in (kind, _EXCLUSIVE.get(kind))]
    if kind not in (SUCCEEDED, FAILED):
        return kept
    return [{**each, "status": "False"} if each.get("type") == RUNNING else each for each in kept]
