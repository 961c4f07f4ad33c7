"""The failure file of a rank, as this package and torch's tools read it, for exceptions of any kind."""

import builtins
import dataclasses
import itertools
import json
import os
import sys
import sysconfig
import time
import traceback
from datetime import timedelta
from functools import partial
from pathlib import Path
from traceback import TracebackException
from types import SimpleNamespace
from typing import Any, NoReturn

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flytekitplugins.kfpytorch.worker import exceptions, failure_file, replica
from flytekitplugins.kfpytorch.worker.console import Console
from flytekitplugins.kfpytorch.worker.local_run import LocalRun
from flytekitplugins.kfpytorch.worker.process_group import SupervisedProcess
from kfpytorch_common.causes import Failure, Frame

# Python 3.11, or the package exceptiongroup in Python 3.10, and Python 3.10 without it.
UNREADABLE = ("<exception str() failed>", "<unprintable Unprintable object>")
FAILURES = st.builds(
    Failure,
    message=st.text(),
    frames=st.lists(st.builds(Frame), max_size=3).map(tuple),
    stopped=st.booleans(),
)
DISTRIBUTED = sysconfig.get_path("purelib") + "/torch/distributed"
ASKED = f"""Stack (most recent call first):
  File "{DISTRIBUTED}/distributed_c10d.py", line 5055 in barrier
  File "{DISTRIBUTED}/c10d_logger.py", line 81 in wrapper
  File "/home/me/train.py", line 9 in train
"""
needs_groups = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 has no notes and no exception groups"
)

read = partial(TracebackException.from_exception, compact=True)
# The attributes of a SyntaxError have no defined types: here, a parser has stored the column as text.
COLUMN = SyntaxError("text", ("recipe.txt", 3, "7", "a = = b"))


def recorded(directory: Path, error: BaseException, replica: str = "worker-0", **recoverable: bool) -> Any:
    identity = failure_file.read_identity(replica)
    failure_file.write_failure(directory, error, identity, **{"recoverable": False, **recoverable})
    return failure_file.read_failure(directory)


def raised(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_failure_file_contains_all_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    error = raised(ValueError("no such\ncolumn"))
    [frame] = traceback.extract_tb(error.__traceback__)
    failure = recorded(tmp_path, error, replica="node 1", recoverable=True)
    assert failure == Failure(
        rank=3,
        local_rank=1,
        replica="node 1",
        exit_code=1,
        time_ns=failure.time_ns,
        pid=os.getpid(),
        exception="ValueError",
        message="no such\ncolumn",
        frames=(Frame(file=__file__, line=frame.lineno or 0, function="raised", code="raise error"),),
        traceback="".join(traceback.format_exception(error)),
        recoverable=True,
    )
    assert 0 <= time.time_ns() - failure.time_ns < 10**9


@pytest.mark.parametrize(
    ("code", "exit_code"), [(None, 0), (0, 0), (3, 3), (256 + 7, 7), (-1, 255), (True, 1), ("no data", 1)]
)
def test_system_exit_has_the_exit_code_of_an_interpreter(tmp_path: Path, code: Any, exit_code: int) -> None:
    failure = recorded(tmp_path, raised(SystemExit(code)))
    assert (failure.exit_code, failure.exception) == (exit_code, "SystemExit")
    argument = f'"{code}"' if isinstance(code, str) else code
    assert failure.message == f"the function called sys.exit({argument})"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit(0)


def test_exception_with_any_message_is_recorded(tmp_path: Path) -> None:
    for error, messages in (
        (ValueError(), ("",)),
        (ValueError("\udcff lone"), ("\udcff lone",)),
        (KeyError("column"), ("'column'",)),
        (Unprintable(), UNREADABLE),
    ):
        failure = recorded(tmp_path, raised(error))
        assert failure.exception == type(error).__name__
        assert failure.message in messages


def test_huge_message_and_deep_recursion_are_truncated(tmp_path: Path) -> None:
    def deep() -> None:
        deep()

    with pytest.raises(RecursionError) as caught:
        deep()
    assert len(recorded(tmp_path, caught.value).traceback) <= 64_000
    assert len(recorded(tmp_path, ValueError("x" * 10**6)).message) == 64_000
    assert (tmp_path / "failure.json").stat().st_size < 10**6


def test_torch_error_is_recognized_by_the_file_that_raised(tmp_path: Path) -> None:
    for file, expected in (
        ("/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", True),
        ("/home/me/torch/train.py", False),
        ("/home/me/torch_models/train.py", False),
    ):
        with pytest.raises(RuntimeError) as caught:
            exec(compile("raise RuntimeError('wrong')", file, "exec"), {})
        assert recorded(tmp_path, caught.value).from_torch is expected
    # `work.wait()` raises this error in a frame of the user after `all_reduce(..., async_op=True)`.
    place = "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561]"
    assert recorded(tmp_path, RuntimeError(f"{place} Connection closed by peer [127.0.0.1]")).from_torch


@pytest.mark.torch
def test_torch_error_raised_in_native_code_is_from_torch(tmp_path: Path) -> None:
    from torch import distributed

    def peer_is_lost() -> None:
        distributed.TCPStore("127.0.0.1", 0, 2, is_master=True, timeout=timedelta(seconds=0.1))

    with pytest.raises(distributed.DistStoreError) as caught:
        peer_is_lost()
    assert recorded(tmp_path, caught.value).from_torch


def test_user_frames_are_kept_and_others_only_if_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    assert {frame.file for frame in recorded(tmp_path, caught.value).frames} == {__file__}
    alone = raised(ValueError())
    alone.__traceback__ = caught.value.__traceback__.tb_next if caught.value.__traceback__ else None
    assert {Path(frame.file).parent.name for frame in recorded(tmp_path, alone).frames} == {"json"}


@given(st.lists(FAILURES, max_size=4))
def test_terminations_of_a_node_are_equal_after_writing_and_reading(tmp_path_factory, all_of) -> None:
    directory = tmp_path_factory.mktemp("node")
    failure_file.write_terminations(directory, all_of, all_of[:2])
    assert failure_file.read_terminations(directory) == (all_of, all_of[:2])


def test_missing_or_incomplete_failure_file_is_ignored(tmp_path: Path) -> None:
    assert (failure_file.read_failure(tmp_path), failure_file.read_terminations(tmp_path)) == (None, ([], []))
    for name in (failure_file.FILE_NAME, failure_file.RANKS_FILE_NAME):
        (tmp_path / name).write_text('{"rank": 1, "repl')
    assert (failure_file.read_failure(tmp_path), failure_file.read_terminations(tmp_path)) == (None, ([], []))


def test_stack_position_has_the_collective_that_the_rank_waits_in(tmp_path: Path) -> None:
    assert failure_file.read_position(tmp_path) == {"frames": (), "waiting": False, "collective": ""}
    command = '  File "<string>", line 3 in <module>\n'
    latest = ASKED.replace("line 9", "line 12")
    (tmp_path / failure_file.STACK_FILE_NAME).write_text(f"{ASKED}{latest}{command}")
    assert failure_file.read_position(tmp_path) == {
        "frames": (Frame(file="/home/me/train.py", line=12, function="train", code=""),),
        "waiting": True,
        "collective": "barrier",
    }


def test_stack_position_is_used_only_for_a_stopped_rank(tmp_path: Path) -> None:
    (tmp_path / failure_file.STACK_FILE_NAME).write_text(ASKED)
    killed = Failure(rank=1, replica="worker-0", exit_code=-9, time_ns=5)
    stopped = dataclasses.replace(killed, stopped=True)
    assert failure_file.get_process_failure(tmp_path, killed) == killed
    assert [frame.line for frame in failure_file.get_process_failure(tmp_path, stopped).frames] == [9]


def test_native_crash_has_the_frames_of_the_main_thread(tmp_path: Path) -> None:
    threads = "".join(
        f'Thread 0x{number} (most recent call first):\n  File "/home/me/{file}.py", line {number} in f\n\n'
        for number, file in ((7, "loader"), (8, "train"))
    )
    (tmp_path / failure_file.STACK_FILE_NAME).write_text(f"{ASKED}Fatal Python error: Aborted\n\n{threads}")
    aborted = Failure(rank=1, replica="worker-0", exit_code=-6, time_ns=5)
    (frame,) = failure_file.get_process_failure(tmp_path, aborted).frames
    assert (frame.file, frame.line) == ("/home/me/train.py", 8)


def test_killed_rank_of_a_pod_has_the_name_of_its_pod(tmp_path: Path) -> None:
    task: Any = SimpleNamespace(task_config=SimpleNamespace(train_job=None))
    client: Any = None  # The process is not started.
    console = Console(None, all_ranks=True)
    run = LocalRun(task, client, console, tmp_path, "", "", on_this_machine=False)
    killed = SupervisedProcess(run.build_replica("local 1", "host a", {}), child=0, pid=7, code=-9)
    console.read_remaining()
    for fd in killed.process.streams:
        os.close(fd)
    assert (killed.read_termination().replica, console.slots[0].label) == ("host a", "local 1")


def test_exit_without_an_error_is_recorded(tmp_path: Path) -> None:
    me = failure_file.WorkerIdentity("worker-0", 1, None)
    silent = Failure(rank=1, replica="worker-0", exit_code=0, time_ns=5)
    assert failure_file.get_process_failure(tmp_path, silent) == silent
    failure_file.write_exit(tmp_path, me)
    assert failure_file.get_process_failure(tmp_path, silent).message == "the function returned"
    failure_file.write_exit(tmp_path, me, SystemExit(0))
    ended = failure_file.get_process_failure(tmp_path, silent)
    assert (ended.exception, ended.message) == ("SystemExit", "the function called sys.exit(0)")


def test_exception_chain_is_recorded_in_order(tmp_path: Path) -> None:
    def read() -> None:
        raise OSError("disk")

    def find() -> None:
        try:
            read()
        except OSError:
            raise KeyError("label")  # noqa: B904 - the context is what is tested.

    def fail() -> None:
        try:
            find()
        except KeyError as error:
            raise ValueError("image") from error

    with pytest.raises(ValueError, match="image") as caught:
        fail()
    assert [
        (each.exception, each.message, each.frames[-1].function, each.handled)
        for each in recorded(tmp_path, caught.value).chain
    ] == [("OSError", "disk", "read", True), ("KeyError", "'label'", "find", False)]


def test_suppressed_context_is_not_recorded_and_a_cyclic_chain_ends(tmp_path: Path) -> None:
    hidden, knot = ValueError("a"), ValueError("b")
    hidden.__context__, hidden.__suppress_context__ = KeyError("c"), True
    knot.__cause__ = knot
    assert (recorded(tmp_path, hidden).chain, recorded(tmp_path, knot).chain) == ((), ())


def test_long_chain_keeps_its_nearest_and_its_first_exceptions(tmp_path: Path) -> None:
    errors = [ValueError(str(number)) for number in range(10)]
    for later, earlier in itertools.pairwise(errors):
        later.__cause__ = earlier
    assert [each.message for each in recorded(tmp_path, errors[0]).chain] == ["9", "3", "2", "1"]


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


def test_cause_that_rejects_assignments_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="outer") as caught:
        fail_from(Frozen(3))
    [cause] = recorded(tmp_path, caught.value).chain
    assert (cause.exception, cause.message, cause.frames[-1].function) == ("Frozen", "3", "fail")


class OddNotes(Exception):
    """An exception whose notes are not in a list."""

    __notes__ = 3


@pytest.mark.parametrize("error", [Delegating("text"), OddNotes("text"), COLUMN], ids=repr)
@pytest.mark.parametrize("is_cause", [False, True])
def test_exception_with_unreadable_attributes_is_recorded_with_its_message(error, is_cause, tmp_path) -> None:
    expected = ValueError("outer") if is_cause else error
    with pytest.raises(type(expected)) as caught:
        fail_from(error) if is_cause else fail(error)
    failure = recorded(tmp_path, caught.value)
    assert (failure.exception, failure.message) == (type(expected).__name__, str(expected))
    assert failure.frames[-1].function == ("fail_from" if is_cause else "fail")
    assert "raise " in failure.traceback


def test_exception_that_has_no_text_either_is_recorded_with_its_position(tmp_path: Path) -> None:
    with pytest.raises(Incomplete) as caught:
        fail(Incomplete())
    failure = recorded(tmp_path, caught.value)
    assert (failure.exception, failure.message) == ("Incomplete", "<exception str() failed>")
    assert failure.frames[-1].function == "fail"


@needs_groups
def test_notes_and_members_of_an_exception_group_follow_the_message() -> None:
    group: Any = vars(builtins)["ExceptionGroup"]
    with pytest.raises(ValueError, match="text") as caught:
        fail(ValueError("text"))
    line = caught.value.__traceback__.tb_next.tb_lineno if caught.value.__traceback__.tb_next else 0
    place = exceptions.format_frame(exceptions.read_user_frames(read(caught.value).stack)[-1])
    assert place.endswith(f"test_failure_file.py:{line} in fail")
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
    assert exceptions.format_message(read(error)) == "no data\nepoch 3\nbatch 7\nof 9"


def test_exception_that_rejects_assignments_is_raised_unchanged() -> None:
    def train() -> None:
        raise Frozen(3)

    with pytest.raises(Frozen) as caught:
        replica.spawn_helper(cloudpickle.dumps(train), "/nowhere", None, None, {})
    assert (caught.value.code, exceptions.list_chain(read(caught.value))) == (3, ())
