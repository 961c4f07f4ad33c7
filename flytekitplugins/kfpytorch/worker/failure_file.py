"""Write and read the failure of a rank as a JSON file."""

import dataclasses
import faulthandler
import json
import os
import re
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from traceback import TracebackException
from typing import Any

from flytekitplugins.kfpytorch.worker import exceptions
from flytekitplugins.kfpytorch.worker.user_frames import read_user_frames, select_user_frames
from kfpytorch_common import tracebacks
from kfpytorch_common.caught import Caught, catch
from kfpytorch_common.causes import Failure, Frame, RaisedException
from kfpytorch_common.forkserver import child

FILE_NAME = "failure.json"
ENDED_FILE_NAME = "ended.json"
RANKS_FILE_NAME = "ranks.json"
STACK_FILE_NAME = "stack.txt"

_STACK_LINE = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_STACK = re.compile(
    r"^(Current thread|Thread|Stack)[^\n]*\(most recent call first\):\n((?:  [^\n]*\n?){0,500})", re.MULTILINE
)
# The maximum length of a text, because the traceback of a recursion can have thousands of frames.
_LONGEST_TEXT = 64_000
_CRASHED = "Fatal Python error"


@dataclasses.dataclass(frozen=True)
class WorkerIdentity:
    """The replica name, rank and local rank of a worker, read before user code can change the environment."""

    replica: str
    rank: int | None
    local_rank: int | None


def read_identity(replica: str, env: Mapping[str, str] = os.environ) -> WorkerIdentity:
    """Return the identity of a worker: the name `replica`, and the rank and local rank in `env`."""
    numbers = [env.get(name, "") for name in ("RANK", "LOCAL_RANK")]
    return WorkerIdentity(replica, *(int(number) if number.isdigit() else None for number in numbers))


def write_failure(
    directory: Path, error: BaseException, identity: WorkerIdentity, *, recoverable: bool
) -> None:
    """Write the failure file of this process, which ends with the exception `error`, into `directory`."""
    failure = build_failure(error, identity, recoverable=recoverable)
    write_json(directory / FILE_NAME, dataclasses.asdict(failure))


def write_exit(directory: Path, identity: WorkerIdentity, stop: BaseException | None = None) -> None:
    """Record in `directory` that this process ends with exit code 0.

    `stop` is the exception that ends the process, such as ``SystemExit(0)``; None if the function returned.
    """
    if stop is not None:
        ended = build_failure(stop, identity, recoverable=False)
    else:
        now = time.time_ns()
        ended = Failure(
            **vars(identity), exit_code=0, time_ns=now, pid=os.getpid(), message="the function returned"
        )
    write_json(directory / ENDED_FILE_NAME, dataclasses.asdict(ended))


def build_failure(error: BaseException, identity: WorkerIdentity, *, recoverable: bool) -> Failure:
    """Return the failure of a process that ends with the exception `error`."""
    described = catch(lambda: _describe(error), BaseException)
    if isinstance(described, Caught):
        described = _describe(exceptions.build_stand_in(error))
    failure = dataclasses.replace(
        described,
        **vars(identity),
        exit_code=exceptions.read_exit_code(error),
        pid=os.getpid(),
        recoverable=recoverable,
    )
    return _unwrap_failure(failure, tracebacks.parse_remote_chain(failure.message))


def _describe(error: BaseException) -> Failure:
    raised = TracebackException.from_exception(error, compact=True)
    return Failure(
        rank=None,
        replica="",
        exit_code=1,
        time_ns=time.time_ns(),
        exception=exceptions.get_class_name(raised),
        message=exceptions.format_message(raised)[:_LONGEST_TEXT],
        frames=read_user_frames(raised.stack),
        chain=exceptions.list_chain(raised),
        collective=exceptions.find_collective(raised.stack),
        traceback="".join(raised.format())[-_LONGEST_TEXT:],
        from_torch=exceptions.is_from_torch(raised),
    )


def _unwrap_failure(failure: Failure, caught: Sequence[RaisedException]) -> Failure:
    """Return `failure` with its exception replaced by the original exception from another process.

    For example, torch raises the exception of a DataLoader worker again in the process of the rank.
    `caught` contains the exceptions in the traceback of the other process. The last exception in `caught`
    replaces that of `failure`. If `caught` is empty, return `failure` unchanged.
    """
    if not caught:
        return failure
    *earlier, last = (dataclasses.replace(each, frames=select_user_frames(each.frames)) for each in caught)
    return dataclasses.replace(
        failure,
        exception=last.exception.rpartition(".")[2],
        message=last.message,
        frames=(*failure.frames, *last.frames),
        chain=tuple(earlier),
        from_torch=False,
    )


def read_failure(directory: Path, name: str = FILE_NAME) -> Failure | None:
    """Return the failure in the file `name` of `directory`; None if the file is missing or incomplete."""
    try:
        fields = json.loads((directory / name).read_bytes())
    except (OSError, ValueError):  # The process was killed before it had written the file.
        return None
    return _decode_failure(fields)


def has_ended(directory: Path) -> bool:
    """True if a process has recorded its failure or exit in its directory `directory`."""
    return any((directory / name).exists() for name in (FILE_NAME, ENDED_FILE_NAME))


def get_process_failure(directory: Path, ended: Failure) -> Failure:
    """Return the failure or exit that a process recorded in `directory`; otherwise return `ended`.

    `ended` contains only data that the caller has, such as the exit code. If the process recorded neither,
    and failed or was stopped, the result also contains the user's frames from its stack file.
    """
    written = read_failure(directory, FILE_NAME if ended.exit_code else ENDED_FILE_NAME)
    if written is not None or (ended.exit_code == 0 and not ended.stopped):
        return written or ended
    return dataclasses.replace(ended, **read_position(directory, crashed=not ended.stopped))


def write_terminations(directory: Path, failures: Iterable[Failure], ended: Iterable[Failure] = ()) -> None:
    """Write the failures of a node's ranks, and the exits with code 0 (`ended`), into `directory`."""
    terminations = [[dataclasses.asdict(each) for each in ranks] for ranks in (failures, ended)]
    write_json(directory / RANKS_FILE_NAME, terminations)


def read_terminations(directory: Path) -> tuple[list[Failure], list[Failure]]:
    """Return the failures and the exits with code 0 that `write_terminations` wrote to `directory`.

    Both lists are empty if the file is missing or incomplete.
    """
    try:
        failures, ended = json.loads((directory / RANKS_FILE_NAME).read_bytes())
    except (OSError, ValueError):
        return [], []
    return [_decode_failure(each) for each in failures], [_decode_failure(each) for each in ended]


def _decode_failure(fields: Mapping[str, Any]) -> Failure:
    chain = tuple(
        RaisedException(**{**each, "frames": _decode_frames(each["frames"])}) for each in fields["chain"]
    )
    return Failure(**{**fields, "frames": _decode_frames(fields["frames"]), "chain": chain})


def _decode_frames(frames: Iterable[Mapping[str, Any]]) -> tuple[Frame, ...]:
    return tuple(Frame(**frame) for frame in frames)


def enable_stack_dumps(directory: Path) -> None:
    """Make this process write its stack to a file when it crashes or receives the signal `ASK_WHERE`."""
    # The file stays open, because a crashed process cannot open a file. Its mode is append, because a reader
    # may truncate it.
    file = (directory / STACK_FILE_NAME).open("a")
    # If a native thread crashes, it has no Python stack. The stack of the main thread then shows the
    # operation of the user's code.
    faulthandler.enable(file, all_threads=True)
    faulthandler.register(child.ASK_WHERE, file, all_threads=False)


def read_stacks(directory: Path) -> str:
    """Return the text of the stack file in `directory`, or an empty text if there is no file."""
    try:
        return (directory / STACK_FILE_NAME).read_text(errors="replace")
    except OSError:
        return ""


def read_position(directory: Path, *, crashed: bool = False) -> dict[str, Any]:
    """Return the fields ``frames``, ``waiting`` and ``collective`` of a `Failure`, read from a stack file.

    If `crashed` is true, read the stack at the crash, otherwise the last stack. The values are empty if the
    file in `directory` contains no such stack.
    """
    text = read_stacks(directory)
    if crashed:  # Ignore the stacks that were written before the crash.
        _, found, after = text.rpartition(_CRASHED)
        text = after if found else ""
    stack = _parse_last_stack(text)
    waits = any(f"{os.sep}torch{os.sep}distributed{os.sep}" in frame.filename for frame in stack)
    collective = exceptions.find_collective(stack)
    return {"frames": read_user_frames(stack), "waiting": waits, "collective": collective}


def _parse_last_stack(text: str) -> list[traceback.FrameSummary]:
    """Return the stack of the crashed thread in `text`; if no thread crashed, return the last stack.

    The last stack in `text` is that of the main thread.
    """
    stacks = sorted(_STACK.findall(text), key=lambda stack: stack[0] == "Current thread")
    lines = _STACK_LINE.findall(stacks[-1][1]) if stacks else []
    stack = [traceback.FrameSummary(file, int(line), name) for file, line, name in reversed(lines)]
    is_command = bool(stack) and stack[0].filename == "<string>"  # The code of `python -c`.
    return stack[1:] if is_command else stack


def write_json(path: Path, content: object) -> None:
    """Write `content` to a file as JSON, atomically: a reader finds a complete file or none."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content))
    part.replace(path)
