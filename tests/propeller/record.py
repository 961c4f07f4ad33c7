"""Records of an execution: what a user sees, and violations of the connector protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from flyteidl.admin import agent_pb2
from flyteidl.core import execution_pb2

ORDER: Final = ("QUEUED", "WAITING_FOR_RESOURCES", "INITIALIZING", "RUNNING")
ENDS: Final = frozenset({"SUCCEEDED", "FAILED", "RETRYABLE_FAILED", "ABORTED"})
# All other phases require a message. The message of RUNNING is never published.
_WORDLESS: Final = frozenset({"QUEUED", "RUNNING", "SUCCEEDED"})
PASSING: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


@dataclass(frozen=True)
class Shown:
    """A published phase."""

    phase: str
    message: str = ""


def phase_of(resource: agent_pb2.Resource) -> str:
    return str(execution_pb2.TaskExecution.Phase.Name(resource.phase))


def rank(phase: str) -> int:
    """Return the position of a phase; terminal phases come last."""
    return ORDER.index(phase) if phase in ORDER else len(ORDER)


@dataclass
class Attempt:
    """The record of an attempt."""

    number: int
    meta: bytes | None = None
    """None until CreateTask has returned."""
    shown: list[Shown] = field(default_factory=list)
    answers: list[agent_pb2.Resource] = field(default_factory=list)
    """The GetTask responses in order of arrival, published or not."""
    deleted: bool = False

    @property
    def phases(self) -> list[str]:
        return [each.phase for each in self.shown]

    def message(self, phase: str) -> str:
        """Return the message that was published with this phase."""
        (found,) = [each.message for each in self.shown if each.phase == phase]
        return found

    def show(self, shown: Shown) -> None:
        """Publish a phase unless the attempt has published it already, as propeller does."""
        if shown.phase not in self.phases:
            self.shown.append(shown)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of an execution."""

    phase: str
    """SUCCEEDED, FAILED, ABORTED or TIMED_OUT."""
    attempts: Sequence[Attempt]
    outputs: Mapping[str, Any]
    code: str = ""
    error: str = ""
    """The error message of the node."""
    violations: Sequence[str] = ()
    """Violations of the connector protocol."""

    @property
    def last(self) -> Attempt:
        return self.attempts[-1]


def against_the_rules(resource: agent_pb2.Resource, floor: int) -> list[str]:
    """Return the violations in a response to a call that started when the rank `floor` had been reached."""
    phase = phase_of(resource)
    wrong = []
    if phase in ("UNDEFINED", "ABORTED"):
        wrong.append(f"{phase} has an empty message")
    if rank(phase) < floor:
        wrong.append(f"{phase} after something later: {resource.message!r}")
    if phase not in _WORDLESS and not resource.message.strip():
        wrong.append(f"{phase} without a word")
    if resource.HasField("outputs"):
        wrong.append(f"{phase} with outputs, which are the store's to hold")
    return wrong
