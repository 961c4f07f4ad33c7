"""What a user would see of an execution, and what a reviewer of its connector would."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from flyteidl.admin import agent_pb2
from flyteidl.core import execution_pb2

ORDER: Final = ("QUEUED", "WAITING_FOR_RESOURCES", "INITIALIZING", "RUNNING")
ENDS: Final = frozenset({"SUCCEEDED", "FAILED", "RETRYABLE_FAILED", "ABORTED"})
# Everything else says something only with words; RUNNING's words are never shown.
_WORDLESS: Final = frozenset({"QUEUED", "RUNNING", "SUCCEEDED"})
PASSING: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


@dataclass(frozen=True)
class Shown:
    """A phase as it was published."""

    phase: str
    message: str = ""
    logs: tuple[str, ...] = ()


def phase_of(resource: agent_pb2.Resource) -> str:
    return str(execution_pb2.TaskExecution.Phase.Name(resource.phase))


def rank(phase: str) -> int:
    """How far it is; an end is farther than anything."""
    return ORDER.index(phase) if phase in ORDER else len(ORDER)


@dataclass
class Attempt:
    """One attempt, from CreateTask on."""

    number: int
    meta: bytes | None = None
    """None until CreateTask has answered."""
    shown: list[Shown] = field(default_factory=list)
    answers: list[agent_pb2.Resource] = field(default_factory=list)
    """Of GetTask, in the order in which they came, shown or not."""
    refusals: list[str] = field(default_factory=list)
    """Errors of calls, each with the method and the status code."""
    deleted: bool = False

    @property
    def phases(self) -> list[str]:
        return [each.phase for each in self.shown]

    def message(self, phase: str) -> str:
        """What was shown with this phase."""
        (found,) = [each.message for each in self.shown if each.phase == phase]
        return found

    def show(self, shown: Shown) -> None:
        """Each phase is sent once in an attempt; what comes later is dropped before anybody sees it."""
        if shown.phase not in self.phases:
            self.shown.append(shown)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an execution came to."""

    phase: str
    """SUCCEEDED, FAILED, ABORTED or TIMED_OUT."""
    attempts: Sequence[Attempt]
    outputs: Mapping[str, Any]
    code: str = ""
    error: str = ""
    """As the node shows it."""
    violations: Sequence[str] = ()
    """What a connector must not do, and did."""

    @property
    def last(self) -> Attempt:
        return self.attempts[-1]


def against_the_rules(resource: agent_pb2.Resource, floor: int) -> list[str]:
    """What is wrong with an answer to a question that was asked when `floor` had been reached."""
    phase = phase_of(resource)
    wrong = []
    if phase in ("UNDEFINED", "ABORTED"):
        wrong.append(f"{phase} says nothing to anybody")
    if rank(phase) < floor:
        wrong.append(f"{phase} after something later: {resource.message!r}")
    if phase not in _WORDLESS and not resource.message.strip():
        wrong.append(f"{phase} without a word")
    if resource.HasField("outputs"):
        wrong.append(f"{phase} with outputs, which are the store's to hold")
    return wrong
