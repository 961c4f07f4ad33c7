"""Every exception is recorded, also one whose class raises when its attributes are read."""

import builtins
import dataclasses
import sys
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle
import pytest

from flytekitplugins.kfpytorch.worker import exceptions, failure_file, replica
from kfpytorch_common.causes import Failure


def refuse(*_: Any) -> NoReturn:
    raise RuntimeError("must not be read")


class NoClass(Exception):
    __class__ = property(refuse)  # type: ignore[assignment]


class NoAttribute(Exception):
    __getattribute__ = refuse


class NoTraceback(Exception):
    __traceback__ = __context__ = __cause__ = __suppress_context__ = property(refuse)  # type: ignore[assignment]


class ExitWithoutCode(SystemExit):
    code = property(refuse)  # type: ignore[assignment]


class OverridingText(str):
    __slots__ = ()
    __getitem__ = __format__ = __len__ = splitlines = partition = refuse


class TextOfClass(Exception):
    def __str__(self) -> str:
        return OverridingText("text")


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


CLASSES = [NoClass, NoAttribute, NoTraceback, ExitWithoutCode, TextOfClass, Frozen]
MESSAGES = {"ExitWithoutCode": "the function called sys.exit('text')", "Frozen": "text"}


def fail(kind: Any) -> NoReturn:
    raise kind("text")


def fail_from(kind: Any) -> None:
    try:
        fail(kind)
    except BaseException as error:
        raise ValueError("outer") from error


def record(directory: Path, error: BaseException) -> Failure:
    failure_file.write_failure(directory, error, failure_file.read_identity("worker-0"), recoverable=False)
    found = failure_file.read_failure(directory)
    assert found is not None
    return found


def name_of(kind: type) -> str:
    name: str = type.__dict__["__qualname__"].__get__(kind)
    return name


@pytest.mark.parametrize("kind", CLASSES, ids=name_of)
def test_exception_and_cause_are_recorded_with_type_message_and_line(tmp_path: Path, kind: Any) -> None:
    found = None
    try:
        fail(kind)
    except BaseException as error:  # noqa: BLE001 - pytest reads the attributes of an exception.
        found = record(tmp_path, error)
    with pytest.raises(ValueError, match="outer") as caught:
        fail_from(kind)
    [cause] = record(tmp_path, caught.value).chain

    assert found is not None
    for each in (found, cause):
        assert (each.exception, each.message) == (name_of(kind), MESSAGES.get(name_of(kind), "text"))
        assert (each.frames[-1].file, each.frames[-1].function) == (__file__, "fail")
    assert f"{found.exception}: " in found.traceback
    assert 'raise kind("text")' in found.traceback


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no notes and no exception groups")
def test_notes_and_members_of_an_exception_group_follow_the_message() -> None:
    group: Any = vars(builtins)["ExceptionGroup"]
    with pytest.raises(ValueError, match="text") as caught:
        fail(ValueError)
    line = caught.value.__traceback__.tb_next.tb_lineno if caught.value.__traceback__.tb_next else 0
    place = exceptions.format_frame(exceptions.read_user_frames(exceptions.read_stack(caught.value))[-1])
    assert place.endswith(f"test_exceptions.py:{line} in fail")
    both = group("two", [caught.value, group("one", [KeyError("key")])])
    assert exceptions.read_message(both).splitlines() == [
        "two (2 sub-exceptions)",
        f"ValueError: text, at {place}",
        "ExceptionGroup: one (1 sub-exception)",
        "  KeyError: 'key'",
    ]
    error = ValueError("no data")
    error.add_note("epoch 3")
    error.add_note("batch 7\nof 9")
    assert exceptions.read_message(error) == "no data\nepoch 3\nbatch 7\nof 9"


def test_exception_that_rejects_assignments_is_raised_unchanged() -> None:
    def train() -> None:
        raise Frozen(3)

    with pytest.raises(Frozen) as caught:
        replica.spawn_helper(cloudpickle.dumps(train), "/nowhere", None, None, {})
    assert (caught.value.code, exceptions.read_chain(caught.value)) == (3, ())
