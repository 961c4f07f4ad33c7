"""Write and read the failure of a rank as a JSON file.

The file is next to torch's own error file. It adds the time in nanoseconds, the frames of the user's code,
and whether the failure is recoverable.
"""

import dataclasses
import faulthandler
import json
import os
import re
import site
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kfpytorch_common import tracebacks
from kfpytorch_common.causes import Failure, Frame, Raised
from kfpytorch_common.forkserver import child

FILE_NAME = "failure.json"
ENDED_FILE_NAME = "ended.json"
TORCH_FILE_NAME = "error.json"
RANKS_FILE_NAME = "ranks.json"
STACK_FILE_NAME = "stack.txt"

ASK_WHERE = child.ASK_WHERE
"""The signal that makes a worker write its stack; None on a system without real-time signals."""

_STACK_LINE = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_STACK = re.compile(
    r"^(Current thread|Thread|Stack)[^\n]*\(most recent call first\):\n((?:  [^\n]*\n?){0,500})", re.MULTILINE
)
_CRASHED = "Fatal Python error"
# The public functions of torch.distributed are in this file.
_COLLECTIVES = f"{os.sep}torch{os.sep}distributed{os.sep}distributed_c10d.py"

# The traceback of a recursion has thousands of frames, and a message may contain a tensor.
_LONGEST_TEXT = 64_000
_LONGEST_CHAIN = 4


@dataclasses.dataclass(frozen=True)
class Who:
    """The identity of a worker, read before user code can change the environment."""

    replica: str
    rank: int | None
    local_rank: int | None


def who(replica: str) -> Who:
    """Return the identity of this process from its environment."""
    return Who(replica, _number("RANK"), _number("LOCAL_RANK"))


def record(directory: Path, error: BaseException, who: Who, *, recoverable: bool) -> None:
    """Write `error` into `directory` as the failure of this process, also in torch's format."""
    failure = _of_error(error, who, recoverable=recoverable)
    _write(directory / FILE_NAME, dataclasses.asdict(failure))
    extra = {"py_callstack": failure.traceback, "timestamp": str(failure.time_ns // 1_000_000_000)}
    said = {"message": {"message": f"{failure.exception}: {failure.message}", "extraInfo": extra}}
    _write(directory / TORCH_FILE_NAME, said)


def record_end(directory: Path, who: Who, stop: SystemExit | None = None) -> None:
    """Record in `directory` that this process ends with exit code 0, through `stop` or a return."""
    if stop is not None:
        ended = _of_error(stop, who, recoverable=False)
    else:
        ended = Failure(
            rank=who.rank,
            local_rank=who.local_rank,
            replica=who.replica,
            exit_code=0,
            time_ns=time.time_ns(),
            pid=os.getpid(),
            message="the function returned",
        )
    _write(directory / ENDED_FILE_NAME, dataclasses.asdict(ended))


def _of_error(error: BaseException, who: Who, *, recoverable: bool) -> Failure:
    text = _safely(lambda: _traceback(error), f"{_class_name(error)} (its traceback cannot be printed)\n")
    stack = traceback.extract_tb(error.__traceback__)
    failure = Failure(
        rank=who.rank,
        local_rank=who.local_rank,
        replica=who.replica,
        exit_code=exit_code(error),
        time_ns=time.time_ns(),
        pid=os.getpid(),
        exception=_class_name(error),
        message=_message(error)[:_LONGEST_TEXT],
        frames=user_frames(stack),
        chain=_chain(error),
        collective=_collective(stack),
        traceback=text[-_LONGEST_TEXT:],
        from_torch=_is_from_torch(error),
        recoverable=recoverable,
    )
    return _unwrapped(failure, tracebacks.caught_elsewhere(failure.message))


def _unwrapped(failure: Failure, caught: Sequence[Raised]) -> Failure:
    """Replace `failure` by the user's exception if torch reraised it from another process (DataLoader)."""
    if not caught:
        return failure
    *earlier, last = (dataclasses.replace(each, frames=_users(each.frames)) for each in caught)
    return dataclasses.replace(
        failure,
        exception=last.exception.rpartition(".")[2],
        message=last.message,
        frames=(*failure.frames, *last.frames),
        chain=tuple(earlier),
        from_torch=False,
    )


def read(directory: Path, name: str = FILE_NAME) -> Failure | None:
    """Read the file of the process with this directory; None if it is missing or incomplete."""
    try:
        said = json.loads((directory / name).read_bytes())
    except (OSError, ValueError):  # The process was killed before or while it wrote.
        return None
    return _failure(said)


def of_process(directory: Path, ended: Failure) -> Failure:
    """Return the failure that a process wrote, or else `ended` with the last known position.

    Args:
        directory: The directory of the process.
        ended: The termination that its parent observed.
    """
    said = read(directory, FILE_NAME if ended.exit_code else ENDED_FILE_NAME)
    if said is not None or ended.exit_code == 0:
        return said or ended
    return dataclasses.replace(ended, **vars(position(directory, crashed=not ended.stopped)))


def write_all(directory: Path, failures: Iterable[Failure], ended: Iterable[Failure] = ()) -> None:
    """Write the terminations of the ranks of a node: failures, and ends with exit code 0."""
    said = [[dataclasses.asdict(each) for each in ranks] for ranks in (failures, ended)]
    _write(directory / RANKS_FILE_NAME, said)


def read_all(directory: Path) -> tuple[list[Failure], list[Failure]]:
    """Return the terminations from `write_all`; two empty lists if the agent wrote none."""
    try:
        failures, ended = json.loads((directory / RANKS_FILE_NAME).read_bytes())
    except (OSError, ValueError):
        return [], []
    return [_failure(each) for each in failures], [_failure(each) for each in ended]


def _failure(said: Mapping[str, Any]) -> Failure:
    chain = tuple(Raised(**{**each, "frames": _frames(each["frames"])}) for each in said["chain"])
    return Failure(**{**said, "frames": _frames(said["frames"]), "chain": chain})


def _frames(said: Iterable[Mapping[str, Any]]) -> tuple[Frame, ...]:
    return tuple(Frame(**frame) for frame in said)


def watch(directory: Path) -> None:
    """Make this process write its stack when it crashes, and when it receives `ASK_WHERE`."""
    # The file stays open, because a crashed process cannot open one.
    file = (directory / STACK_FILE_NAME).open("w")
    # A native thread has no Python stack; that of the main thread shows the operation it belongs to.
    faulthandler.enable(file, all_threads=True)
    if ASK_WHERE is not None:
        faulthandler.register(ASK_WHERE, file, all_threads=False)


@dataclasses.dataclass(frozen=True)
class Position:
    """The position of a process, with the field names of `Failure`."""

    frames: tuple[Frame, ...] = ()
    waiting: bool = False
    collective: str = ""


def position(directory: Path, *, crashed: bool = False) -> Position:
    """Return the position of a process when it last received `ASK_WHERE`, or when it crashed."""
    try:
        text = (directory / STACK_FILE_NAME).read_text(errors="replace")
    except OSError:
        return Position()
    if crashed:  # Earlier stacks do not belong to the crash.
        text = text.rpartition(_CRASHED)[2] if _CRASHED in text else ""
    stacks = _STACK.findall(text)
    # After a crash, the thread that crashed; otherwise the main thread, which comes last.
    stacks.sort(key=lambda stack: stack[0] == "Current thread")
    lines = _STACK_LINE.findall(stacks[-1][1]) if stacks else []
    stack = [traceback.FrameSummary(file, int(line), name) for file, line, name in reversed(lines)]
    waits = any(f"{os.sep}torch{os.sep}distributed{os.sep}" in frame.filename for frame in stack)
    return Position(user_frames(stack), waits, _collective(stack))


def _collective(stack: Iterable[traceback.FrameSummary]) -> str:
    """Return the public function of torch.distributed in `stack`, or an empty string."""
    called = (frame.name for frame in stack if frame.filename.endswith(_COLLECTIVES))
    return next((name for name in called if not name.startswith("_")), "")


def exit_code(error: BaseException) -> int:
    """Return the exit code of an interpreter that ends with `error`."""
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def user_frames(frames: Iterable[traceback.FrameSummary]) -> tuple[Frame, ...]:
    """Return the frames in the user's files, or in all files but the plugin's if there are none."""
    return _users(
        Frame(file=frame.filename, line=frame.lineno or 0, function=frame.name, code=frame.line or "")
        for frame in frames
    )


def _users(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    known = [frame for frame in frames if not _is_ours(frame.file)]
    return tuple([frame for frame in known if not _is_installed(frame.file)] or known)


def _chain(error: BaseException) -> tuple[Raised, ...]:
    """Return the exceptions that led to `error`, the earliest first, at most `_LONGEST_CHAIN`."""
    found: list[Raised] = []
    seen = {id(error)}
    while (before := _before(error)) is not None and id(before) not in seen:
        seen.add(id(before))  # User code may create a cycle.
        found.append(_raised(before, handled=error.__cause__ is None))
        error = before
    if len(found) > _LONGEST_CHAIN:
        found[_LONGEST_CHAIN - 1 : -1] = []
    return tuple(reversed(found))


def _before(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None:  # Not tested for truth, because that runs user code.
        return error.__cause__
    return None if error.__suppress_context__ else error.__context__


def _raised(error: BaseException, *, handled: bool) -> Raised:
    return Raised(
        exception=_class_name(error),
        message=_message(error)[:_LONGEST_TEXT],
        frames=user_frames(traceback.extract_tb(error.__traceback__)),
        handled=handled,
    )


_HERE = str(Path(__file__).parent.parent) + os.sep
_COMMON = f"{os.sep}kfpytorch_common{os.sep}"


def _is_ours(file: str) -> bool:
    return file.startswith((_HERE, "<frozen importlib")) or _COMMON in file or "cloudpickle" in file


def _installed_in() -> Sequence[str]:
    paths = sysconfig.get_paths()
    places = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")}
    return tuple(
        str(place) + os.sep for place in {*places, *site.getsitepackages(), sys.base_prefix + "/lib"}
    )


def _is_installed(file: str) -> bool:
    return file.startswith(("<frozen", *_installed_in()))


def _is_from_torch(error: BaseException) -> bool:
    """True if torch raised the error: in one of its files, or from C++ called by the user."""
    if _TRANSPORT.search(_message(error)) or _class_name(error).startswith("Dist"):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and f"{os.sep}site-packages{os.sep}torch{os.sep}" in frames[-1].filename


_TRANSPORT = re.compile(r"third_party/gloo/|ProcessGroup(Gloo|NCCL)\.cpp")


def _class_name(error: BaseException) -> str:
    name: str = _QUALNAME(type(error))
    return name.rpartition("<locals>.")[2]


_QUALNAME = type.__dict__["__qualname__"].__get__


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def _message(error: BaseException) -> str:
    if issubclass(type(error), SystemExit):
        return _safely(lambda: f"the function called sys.exit({error.code!r})")  # type: ignore[attr-defined]
    message = _safely(lambda: str(error))
    # The message of an exception group has only the number of its exceptions.
    parts = _safely(lambda: _messages_of_parts(error), "")
    return f"{message}\n{parts}" if parts else message


def _messages_of_parts(error: BaseException) -> str:
    parts = getattr(error, "exceptions", None)
    if type(parts) is not tuple:
        return ""
    return "\n".join(f"{_class_name(part)}: {_message(part)}" for part in parts)


def _safely(describe: Callable[[], str], otherwise: str | None = None) -> str:
    """Return the result of `describe`, or a fixed text if the user code that it runs raises."""
    try:
        return describe()
    except BaseException as unprintable:  # noqa: BLE001 - a method of a user's exception may raise anything.
        if otherwise is not None:
            return otherwise
        return f"(its message cannot be printed: {_class_name(unprintable)})"


def _number(name: str) -> int | None:
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else None


def _write(path: Path, said: object) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(said))
    part.replace(path)  # Atomic: a reader finds a complete file or none.
