"""Exceptions are recorded with their causes, notes and members, also if methods of their class raise."""

import builtins
import dataclasses
import sys
from functools import partial
from pathlib import Path
from traceback import TracebackException
from typing import Any, NoReturn

import cloudpickle
import pytest

from flytekitplugins.kfpytorch.worker import exceptions, failure_file, replica

needs_groups = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 has no notes and no exception groups"
)

read = partial(TracebackException.from_exception, compact=True)


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Delegating(Exception):
    """An exception whose `__getattr__` raises another exception than AttributeError."""

    def __getattr__(self, name: str) -> Any:
        return {}[name]


class Incomplete(Delegating):
    """An exception whose `__str__` raises, too, because its `__init__` has set no attributes."""

    def __str__(self) -> str:
        return str(self.detail)


def fail(error: BaseException) -> NoReturn:
    raise error


def fail_from(cause: BaseException) -> None:
    try:
        fail(cause)
    except type(cause) as error:
        raise ValueError("outer") from error


def record(directory: Path, error: BaseException) -> Any:
    failure_file.write_failure(directory, error, failure_file.read_identity("worker-0"), recoverable=False)
    return failure_file.read_failure(directory)


def test_cause_that_rejects_assignments_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="outer") as caught:
        fail_from(Frozen(3))
    [cause] = record(tmp_path, caught.value).chain
    assert (cause.exception, cause.message, cause.frames[-1].function) == ("Frozen", "3", "fail")


class OddNotes(Exception):
    """An exception whose notes are not in a list."""

    __notes__ = 3


# The attributes of a SyntaxError have no defined types: here, a parser has stored the column as text.
COLUMN = SyntaxError("text", ("recipe.txt", 3, "7", "a = = b"))


@pytest.mark.parametrize("error", [Delegating("text"), OddNotes("text"), COLUMN], ids=repr)
@pytest.mark.parametrize("is_cause", [False, True])
def test_exception_with_unreadable_attributes_is_recorded_with_its_message(
    error: Exception, is_cause: bool, tmp_path: Path
) -> None:
    expected = ValueError("outer") if is_cause else error
    with pytest.raises(type(expected)) as caught:
        fail_from(error) if is_cause else fail(error)
    failure = record(tmp_path, caught.value)
    assert (failure.exception, failure.message) == (type(expected).__name__, str(expected))
    assert failure.frames[-1].function == ("fail_from" if is_cause else "fail")
    assert "raise " in failure.traceback


def test_exception_that_has_no_text_either_is_recorded_with_its_position(tmp_path: Path) -> None:
    with pytest.raises(Incomplete) as caught:
        fail(Incomplete())
    failure = record(tmp_path, caught.value)
    assert (failure.exception, failure.message) == ("Incomplete", "<exception str() failed>")
    assert failure.frames[-1].function == "fail"


@needs_groups
def test_notes_and_members_of_an_exception_group_follow_the_message() -> None:
    group: Any = vars(builtins)["ExceptionGroup"]
    with pytest.raises(ValueError, match="text") as caught:
        fail(ValueError("text"))
    line = caught.value.__traceback__.tb_next.tb_lineno if caught.value.__traceback__.tb_next else 0
    stack = read(caught.value).stack
    place = exceptions.format_frame(exceptions.read_user_frames(stack)[-1])
    assert place.endswith(f"test_exceptions.py:{line} in fail")
    both = group("two", [caught.value, group("one", [KeyError("key")])])
    assert exceptions.format_message(read(both)).splitlines() == [
        "two (2 sub-exceptions)",
        f"ValueError: text, at {place}",
        "ExceptionGroup: one (1 sub-exception)",
        "  KeyError: 'key'",
    ]
    error = ValueError("no data")
    error.add_note("epoch 3")
    error.add_note("batch 7\nof 9")
    message = exceptions.format_message(read(error))
    assert message == "no data\nepoch 3\nbatch 7\nof 9"


def test_exception_that_rejects_assignments_is_raised_unchanged() -> None:
    def train() -> None:
        raise Frozen(3)

    with pytest.raises(Frozen) as caught:
        replica.spawn_helper(cloudpickle.dumps(train), "/nowhere", None, None, {})
    assert (caught.value.code, exceptions.list_chain(read(caught.value))) == (3, ())
