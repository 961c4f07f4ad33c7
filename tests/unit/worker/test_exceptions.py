"""Exceptions are recorded with their causes, notes and members, also if methods of their class raise."""

import builtins
import dataclasses
import sys
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle
import pytest

from flytekitplugins.kfpytorch.worker import exceptions, failure_file, replica
from kfpytorch_common.caught import Caught, catch

needs_groups = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 has no notes and no exception groups"
)


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Delegating(Exception):
    """An exception whose `__getattr__` raises another exception than AttributeError."""

    def __getattr__(self, name: str) -> Any:
        return {}[name]


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


class Refusing(Exception):
    """An exception whose attributes cannot be read."""

    def __getattribute__(self, name: str) -> Any:
        raise KeyError(name)


@pytest.mark.parametrize("middle", [Delegating, Refusing])
def test_chain_with_an_exception_whose_attributes_cannot_be_read_is_complete(
    middle: type[Exception], tmp_path: Path
) -> None:
    def stop() -> None:
        try:
            try:
                fail_from(OSError(2, "no file"))
            except ValueError:
                fail(middle("text"))
        except middle as error:
            raise SystemExit("stopped") from error

    with pytest.raises(SystemExit) as caught:
        stop()
    failure = record(tmp_path, caught.value)
    assert (failure.exception, failure.message) == ("SystemExit", 'the function called sys.exit("stopped")')
    assert [(each.exception, each.message, each.handled) for each in failure.chain] == [
        ("FileNotFoundError", "[Errno 2] no file", False),
        ("ValueError", "outer", True),
        (middle.__name__, "text", False),
    ]
    assert [each.frames[-1].function for each in failure.chain] == ["fail", "fail_from", "fail"]
    assert "During handling of the above exception" in failure.traceback


@needs_groups
def test_group_with_a_member_whose_attributes_cannot_be_read_is_recorded_with_all_members(
    tmp_path: Path,
) -> None:
    group: Any = vars(builtins)["ExceptionGroup"]
    noted: Any = KeyError("key")
    noted.add_note("epoch 3")
    error = Delegating("text")
    # As after `raise error` in a handler of the group.
    error.__context__ = group("two", [error, group("one", [noted])])
    [context] = record(tmp_path, error).chain
    assert (context.exception, context.message.splitlines()) == (
        "ExceptionGroup",
        [
            "two (2 sub-exceptions)",
            "Delegating: text",
            "ExceptionGroup: one (1 sub-exception)",
            "  KeyError: 'key'",
            "    epoch 3",
        ],
    )


class OddNotes(Exception):
    """An exception whose notes are not in a list."""

    __notes__ = 3


# The attributes of a SyntaxError have no defined types: here, a parser has stored the column as text.
COLUMN = SyntaxError("text", ("recipe.txt", 3, "7", "a = = b"))


@pytest.mark.parametrize("error", [Delegating("text"), OddNotes("text"), COLUMN], ids=repr)
def test_exception_whose_attributes_cannot_be_read_is_recorded_with_its_message(
    error: Exception, tmp_path: Path
) -> None:
    with pytest.raises(type(error)) as caught:
        fail(error)
    failure = record(tmp_path, caught.value)
    assert (failure.exception, failure.frames[-1].function) == (type(error).__name__, "fail")
    assert failure.message.startswith("text")
    assert "raise error" in failure.traceback


class OtherTraceback(Exception):
    __traceback__ = 5  # type: ignore[assignment]


class OtherClass(Exception):
    @property
    def __class__(self) -> Any:
        raise KeyError("__class__")


class OddText(str):
    def __len__(self) -> int:
        raise KeyError("__len__")


class OddMessage(Exception):
    def __str__(self) -> str:
        return OddText("text")


class NoCode(SystemExit):
    @property
    def code(self) -> Any:
        raise KeyError("code")


class Nameless(type):
    def __getattribute__(cls, name: str) -> Any:
        raise KeyError(name)


class OfNameless(Exception, metaclass=Nameless):
    pass


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Refusing, "text"),
        (OtherTraceback, "text"),
        (OtherClass, "text"),
        (OddMessage, "the message is unknown, because reading the exception raises KeyError"),
        (NoCode, "the message is unknown, because reading the exception raises KeyError"),
        (OfNameless, "the message is unknown, because reading the exception raises KeyError"),
    ],
    ids=["attributes", "traceback", "class", "message", "exit code", "class name"],
)
def test_worker_records_class_and_line_of_every_exception(
    kind: type[BaseException], message: str, tmp_path: Path
) -> None:
    def train() -> None:
        raise kind("text")

    caught = catch(train, BaseException)
    assert isinstance(caught, Caught)
    # A worker has its own process; this is the part of it that does not change the calling process.
    code = replica._record_error(caught.error, failure_file.read_identity("worker-0"), tmp_path)
    failure: Any = failure_file.read_failure(tmp_path)
    assert (code, failure.exception, failure.message) == (
        1,
        type.__repr__(kind)[:-2].rpartition(".")[2],
        message,
    )
    assert (failure.frames[-1].function, failure.frames[-1].code) == ("train", 'raise kind("text")')


@needs_groups
def test_notes_and_members_of_an_exception_group_follow_the_message() -> None:
    group: Any = vars(builtins)["ExceptionGroup"]
    with pytest.raises(ValueError, match="text") as caught:
        fail(ValueError("text"))
    line = caught.value.__traceback__.tb_next.tb_lineno if caught.value.__traceback__.tb_next else 0
    stack = exceptions.read_exception(caught.value).stack
    place = exceptions.format_frame(exceptions.read_user_frames(stack)[-1])
    assert place.endswith(f"test_exceptions.py:{line} in fail")
    both = group("two", [caught.value, group("one", [KeyError("key")])])
    assert exceptions.format_message(exceptions.read_exception(both)).splitlines() == [
        "two (2 sub-exceptions)",
        f"ValueError: text, at {place}",
        "ExceptionGroup: one (1 sub-exception)",
        "  KeyError: 'key'",
    ]
    error = ValueError("no data")
    error.add_note("epoch 3")
    error.add_note("batch 7\nof 9")
    message = exceptions.format_message(exceptions.read_exception(error))
    assert message == "no data\nepoch 3\nbatch 7\nof 9"


def test_exception_that_rejects_assignments_is_raised_unchanged() -> None:
    def train() -> None:
        raise Frozen(3)

    with pytest.raises(Frozen) as caught:
        replica.spawn_helper(cloudpickle.dumps(train), "/nowhere", None, None, {})
    assert (caught.value.code, exceptions.list_chain(exceptions.read_exception(caught.value))) == (3, ())
