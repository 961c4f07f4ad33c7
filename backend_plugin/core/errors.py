"""The errors for invalid input and rejected requests, and the problems of a task with their remedies."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

MOST_PROBLEMS: Final = 50
"""The number of problems after which the validation of a task stops."""
CUSTOM_BYTES: Final = 256 * 2**10
"""The size limit of a task's `custom`, in bytes; this project's plugin writes a few kilobytes."""


class BackendError(Exception):
    """The base class of the errors that this package defines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An invalid value of a task or of the settings."""

    field: str
    """The path of the value in the template or the settings, such as ``custom.workerReplicas.replicas``."""
    value: str
    """The value, shortened for display."""
    message: str
    """A sentence on what is wrong with the value, without a full stop."""
    remedy: str
    """A sentence on what to write instead."""

    def __str__(self) -> str:
        return f"{self.field}={self.value}: {self.message}; {self.remedy}"


class InvalidInput(BackendError):
    """An input is invalid. The error contains all its problems."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class InvalidTask(InvalidInput):
    """The task is invalid, so a retry cannot succeed."""


class InvalidSettings(InvalidInput):
    """The settings of the platform are invalid."""


def check_size(
    field: str, size: int, limit: int, remedy: str = "pass large data as files, or as inputs of the task"
) -> list[Problem]:
    """Return a problem if the size of a field exceeds `limit`, both in bytes; otherwise an empty list."""
    if size <= limit:
        return []
    return [
        Problem(
            field=field,
            value=f"{size:,} bytes",
            message=f"is larger than the limit of {limit:,} bytes",
            remedy=remedy,
        )
    ]


class Problems(list[Problem]):
    """A list of problems that raises `InvalidTask` as soon as it has `MOST_PROBLEMS` elements."""

    def __init__(self, problems: Iterable[Problem] = ()) -> None:
        super().__init__()
        self.extend(problems)

    def append(self, problem: Problem) -> None:
        """Add one problem; raise `InvalidTask` if the list then has `MOST_PROBLEMS` elements."""
        super().append(problem)
        if len(self) >= MOST_PROBLEMS:
            raise InvalidTask(*self)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add each problem. After `MOST_PROBLEMS`, read no more of the iterable, to limit the time."""
        for problem in problems:
            self.append(problem)

    def __iadd__(self, problems: Iterable[Problem]) -> "Problems":  # type: ignore[misc, override]
        """Extend the list, as `extend` does."""
        self.extend(problems)
        return self


@contextmanager
def collect_problems() -> Iterator[list[Problem]]:
    """Yield a list for the problems of several checks; then raise one `InvalidTask` if there are any.

    If the body of the ``with`` statement raises an `InvalidTask`, its problems are added at the end.
    """
    problems = Problems()
    try:
        yield problems
    except InvalidTask as refusal:
        collected = dict.fromkeys((*problems, *refusal.problems))
        raise InvalidTask(*[*collected][:MOST_PROBLEMS]) from refusal
    if problems:
        raise InvalidTask(*problems)


class AttemptSuperseded(BackendError):
    """Flyte no longer waits for the attempt, because a later attempt of the same Flyte node has begun."""


class RequestRejected(BackendError):
    """The API server rejects a request; the attributes are fields of the Status that it returns.

    A retry cannot succeed, unless a quota is exceeded (`rejection.is_transient`).
    """

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
