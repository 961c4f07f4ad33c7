"""What can be wrong with a task, said once: every problem of it, each with its remedy.

Lives here: the family of errors that no repetition mends. Does not: passing trouble of a cluster, which
only the shell can have.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class BackendError(Exception):
    """Something we can name went wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One value of a task, or of the settings, that cannot be used."""

    field: str
    """Where it stands, as a path from the task template: ``custom.workerReplicas.replicas``."""
    value: str
    """What stands there, shortened for display."""
    message: str
    """What is wrong with it, in a sentence without a full stop."""
    remedy: str
    """What would be right."""

    def __str__(self) -> str:
        return f"{self.field}={self.value}: {self.message}; {self.remedy}"


class InvalidTask(BackendError):
    """The task asks for something that no retry can give; all its problems at once."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


@contextmanager
def gathered() -> Iterator[list[Problem]]:
    """Collect the problems of several stages, so that all are told at once.

    Yields the list to add to; raises `InvalidTask` at the end if there is any, with those of an
    `InvalidTask` raised meanwhile behind them.
    """
    problems: list[Problem] = []
    try:
        yield problems
    except InvalidTask as refusal:
        raise InvalidTask(*problems, *refusal.problems) from refusal
    if problems:
        raise InvalidTask(*problems)


class InvalidSettings(BackendError):
    """The platform's settings say something that cannot be meant; all problems at once."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class Refused(BackendError):
    """The cluster will not have it, however often it is asked: HTTP's 400, 403, 404, 413 and 422.

    Args:
        code: HTTP's status.
        reason: Kubernetes' word for it: ``Invalid``, ``Forbidden``, ``NotFound``.
        message: Kubernetes' sentence.
    """

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
