"""What can be wrong with a task, said once: every problem of it, each with its remedy.

Lives here: the family of errors that no repetition mends. Does not: passing trouble of a cluster, which
only the shell can have.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

MOST_PROBLEMS: Final = 50
"""Problems of one task after which it is not read any further."""


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


class Problems(list[Problem]):
    """A list of the problems of a task that ends its reading when it is full.

    Adding the last of `MOST_PROBLEMS` raises `InvalidTask` with all of them, so that the time for a task with
    very many problems has a limit. Iterables are read one by one for the same reason.
    """

    def __init__(self, problems: Iterable[Problem] = ()) -> None:
        super().__init__()
        self.extend(problems)

    def append(self, problem: Problem) -> None:
        """Add one."""
        super().append(problem)
        if len(self) >= MOST_PROBLEMS:
            raise InvalidTask(*self)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add each one."""
        for problem in problems:
            self.append(problem)

    def __iadd__(self, problems: Iterable[Problem]) -> "Problems":  # type: ignore[misc, override]
        """Add each one."""
        self.extend(problems)
        return self


@contextmanager
def gathered() -> Iterator[list[Problem]]:
    """Collect the problems of several stages, so that all are told at once.

    Yields the list to add to; raises `InvalidTask` at the end if there is any, with those of an
    `InvalidTask` raised meanwhile behind them.
    """
    problems = Problems()
    try:
        yield problems
    except InvalidTask as refusal:
        found = dict.fromkeys((*problems, *refusal.problems))
        raise InvalidTask(*[*found][:MOST_PROBLEMS]) from refusal
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
