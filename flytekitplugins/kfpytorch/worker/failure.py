"""How a rank writes down why it failed, and how others read it.

The file lies beside the one that torch's own tools read, and says more: nanoseconds, the frames of
the user's code, whether a retry can help.
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

from kfpytorch_common.causes import Failure, Frame
from kfpytorch_common.forkserver import child

FILE_NAME = "failure.json"
TORCH_FILE_NAME = "error.json"
RANKS_FILE_NAME = "ranks.json"
STACK_FILE_NAME = "stack.txt"

ASK_WHERE = child.ASK_WHERE
"""The signal on which a worker writes its stack; None on a system without real-time signals."""

_STACK_LINE = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)

# A traceback of a recursion has thousands of frames, and a message may hold a tensor.
_LONGEST_TEXT = 64_000


@dataclasses.dataclass(frozen=True)
class Who:
    """Which worker this is, read before a user's code can change the environment."""

    replica: str
    rank: int | None
    local_rank: int | None


def who(replica: str) -> Who:
    """This process, as its environment names it."""
    return Who(replica, _number("RANK"), _number("LOCAL_RANK"))


def record(directory: Path, error: BaseException, who: Who, *, recoverable: bool) -> None:
    """Write `error` into `directory` as this process's failure, for us and for torch's tools."""
    now = time.time_ns()
    text = _safely(lambda: _traceback(error), f"{_class_name(error)} (its traceback cannot be printed)\n")
    message = _message(error)[:_LONGEST_TEXT]
    failure = Failure(
        rank=who.rank,
        local_rank=who.local_rank,
        replica=who.replica,
        exit_code=exit_code(error),
        time_ns=now,
        pid=os.getpid(),
        exception=_class_name(error),
        message=message,
        frames=user_frames(traceback.extract_tb(error.__traceback__)),
        traceback=text[-_LONGEST_TEXT:],
        from_torch=_is_from_torch(error),
        recoverable=recoverable,
    )
    _write(directory / FILE_NAME, dataclasses.asdict(failure))
    extra = {"py_callstack": failure.traceback, "timestamp": str(now // 1_000_000_000)}
    said = {"message": {"message": f"{failure.exception}: {failure.message}", "extraInfo": extra}}
    _write(directory / TORCH_FILE_NAME, said)


def read(directory: Path) -> Failure | None:
    """What the process of `directory` wrote, if it had the time to."""
    try:
        said = json.loads((directory / FILE_NAME).read_bytes())
    except (OSError, ValueError):  # Killed before it wrote, or while it did.
        return None
    return _failure(said)


def write_all(directory: Path, failures: Iterable[Failure]) -> None:
    """Write the failures of a node's ranks, as its agent saw them."""
    _write(directory / RANKS_FILE_NAME, [dataclasses.asdict(each) for each in failures])


def read_all(directory: Path) -> list[Failure]:
    """What `write_all` wrote; nothing if the agent had no time to."""
    try:
        said = json.loads((directory / RANKS_FILE_NAME).read_bytes())
    except (OSError, ValueError):
        return []
    return [_failure(each) for each in said]


def _failure(said: Mapping[str, Any]) -> Failure:
    return Failure(**{**said, "frames": tuple(Frame(**frame) for frame in said["frames"])})


def watch(directory: Path) -> None:
    """Have this process write where it is when it crashes, and when it is asked to by `ASK_WHERE`."""
    # Open as long as the process: a crash has no time to open a file.
    file = (directory / STACK_FILE_NAME).open("w")
    faulthandler.enable(file, all_threads=False)
    if ASK_WHERE is not None:
        faulthandler.register(ASK_WHERE, file, all_threads=False)


def whereabouts(directory: Path) -> tuple[tuple[Frame, ...], bool]:
    """Where a process was when it was last asked or crashed, and whether it waited for its peers."""
    try:
        text = (directory / STACK_FILE_NAME).read_text(errors="replace")
    except OSError:
        return (), False
    lines = _STACK_LINE.findall(text.rpartition("(most recent call first):")[2])
    stack = [traceback.FrameSummary(file, int(line), name) for file, line, name in reversed(lines)]
    waits = any(f"{os.sep}torch{os.sep}distributed{os.sep}" in frame.filename for frame in stack)
    return user_frames(stack), waits


def exit_code(error: BaseException) -> int:
    """The exit code of an interpreter that `error` ends."""
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def user_frames(frames: Iterable[traceback.FrameSummary]) -> tuple[Frame, ...]:
    """The frames of the user's own files; of all files but ours, when there are none."""
    known = [frame for frame in frames if not _is_ours(frame.filename)]
    users = [frame for frame in known if not _is_installed(frame.filename)]
    return tuple(
        Frame(file=frame.filename, line=frame.lineno or 0, function=frame.name, code=frame.line or "")
        for frame in (users or known)
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
    """Whether torch raised it: in a file of its own, or from C++ in the line of its caller."""
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
    """Return what `describe` returns; a fixed text if the code of the user that it runs raises."""
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
    part.replace(path)  # A reader finds all of it or nothing.
