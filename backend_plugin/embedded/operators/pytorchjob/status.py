"""Builds the status of a PyTorchJob in a reconcile pass, with the operator's rules for conditions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_time
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.embedded.objects import find_condition, format_time
from backend_plugin.embedded.operators.pytorchjob.job_spec import DIALECT

CREATED: Final = "Created"
RUNNING: Final = "Running"
RESTARTING: Final = "Restarting"
SUSPENDED: Final = "Suspended"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

# A job has only one of these two conditions: the newer one removes the older one.
_EXCLUSIVE: Final[Mapping[str, str]] = {RUNNING: RESTARTING, RESTARTING: RUNNING}


def format_reason(word: str) -> str:
    """Return the reason of a condition or event: ``PyTorchJob`` followed by `word`."""
    return DIALECT.name + word


@dataclass(slots=True, kw_only=True)
class StatusBuilder:
    """A mutable job status. Changes are recorded with the time `now`."""

    now: datetime
    conditions: list[Manifest] = field(default_factory=list)
    replicas: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The counts and the label selector of each role. The count `restarts` (recreated pods, plus the restarts
    of their containers) exists only in this emulation, not in the real operator."""
    times: dict[str, JsonValue] = field(default_factory=dict)
    """The fields `startTime`, `completionTime` and `lastReconcileTime`."""

    @classmethod
    def from_manifest(cls, stored: Manifest, now: datetime) -> "StatusBuilder":
        """Return a builder that starts with the stored status of a job."""
        replicas = get_mapping(stored, "replicaStatuses")
        times = ("startTime", "completionTime", "lastReconcileTime")
        return cls(
            now=now,
            conditions=list(get_mappings(stored, "conditions")),
            replicas={name: {**get_mapping(replicas, name)} for name in replicas},
            times={name: stored[name] for name in times if stored.get(name)},
        )

    def build_manifest(self) -> Manifest:
        """Return the status as stored, without empty fields."""
        replicas = {
            name: {key: value for key, value in self.replicas[name].items() if value}
            for name in sorted(self.replicas)
        }
        status: Manifest = {"conditions": self.conditions, "replicaStatuses": replicas}
        return {**{name: value for name, value in status.items() if value}, **self.times}

    def has_condition(self, kind: str) -> bool:
        """True if the condition of this type has the status ``True``."""
        return find_condition(self.conditions, kind).get("status") == "True"

    @property
    def is_finished(self) -> bool:
        """True if the job has succeeded or failed."""
        return self.has_condition(SUCCEEDED) or self.has_condition(FAILED)

    def set_condition(self, kind: str, message: str, *, word: str = "", holds: str = "True") -> None:
        """Set the condition of type `kind`, unless the job has failed or nothing changes.

        The reason is ``PyTorchJob`` followed by `word` (by default `kind`). The new status is `holds`.
        """
        old, reason = find_condition(self.conditions, kind), format_reason(word or kind)
        is_current = (old.get("status"), old.get("reason")) == (holds, reason)
        if self.has_condition(FAILED) or is_current:
            return
        at = format_time(self.now)
        new = {
            "type": kind,
            "status": holds,
            "reason": reason,
            "message": message,
            "lastUpdateTime": at,
            "lastTransitionTime": old["lastTransitionTime"] if old.get("status") == holds else at,
        }
        self.conditions = [*_select_remaining(kind, self.conditions), new]

    def set_start_time(self) -> None:
        """Set the start time to `now`, even if there is a start time already."""
        self.times["startTime"] = format_time(self.now)

    def ensure_completion_time(self) -> None:
        """Set the completion time, if it is not set."""
        self.times.setdefault("completionTime", format_time(self.now))

    def get_time(self, name: str, *, after: int = 0) -> datetime | None:
        """Return the time `name`, such as `startTime`, plus `after` seconds; None if the time is not set."""
        time = get_time(self.times, name)
        return None if time is None else time + timedelta(seconds=after)

    def add_counts(self, role: str, **more: int) -> None:
        """Increase the counts of one role, for example by ``failed=1``."""
        old = self.replicas.setdefault(role, {})
        old |= {name: old.get(name, 0) + by for name, by in more.items()}

    def get_count(self, role: str, name: str) -> int:
        """Return the count `name` of a role, such as `active` or `failed`; 0 if it is not set."""
        return get_int(self.replicas.get(role, {}), name) or 0


def _select_remaining(kind: str, conditions: list[Manifest]) -> list[Manifest]:
    remaining = [each for each in conditions if each.get("type") not in (kind, _EXCLUSIVE.get(kind))]
    if kind not in (SUCCEEDED, FAILED):
        return remaining
    return [{**each, "status": "False"} if each.get("type") == RUNNING else each for each in remaining]
