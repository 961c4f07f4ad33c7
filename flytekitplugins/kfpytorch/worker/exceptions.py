"""Read an exception whose class may override any attribute with code that raises.

The attributes of `BaseException` are read through its own descriptors, and the type through `type`, so that
no code of the class runs. Code that must run, such as `__str__`, runs in `_call_safely`.
"""

import os
import re
import traceback
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final

from flytekitplugins.kfpytorch.worker.user_frames import format_frame, read_user_frames
from kfpytorch_common.caught import Caught, catch
from kfpytorch_common.causes import RaisedException

LONGEST_TEXT: Final = 64_000
"""Maximum length of a recorded text. The traceback of a recursion has thousands of frames."""

_LONGEST_CHAIN: Final = 4
# A limit, because an exception group can contain itself.
_DEEPEST_GROUP: Final = 8
# The public functions of torch.distributed are in this file.
_COLLECTIVES: Final = f"{os.sep}torch{os.sep}distributed{os.sep}distributed_c10d.py"
_TRANSPORT: Final = re.compile(r"third_party/gloo/|ProcessGroup(Gloo|NCCL)\.cpp")
_ATTRIBUTES: Final = vars(BaseException)
_QUALNAME: Final = type.__dict__["__qualname__"].__get__


class UserError(BaseException):
    """Carries an exception of the user's code through context managers.

    `contextlib` assigns `__traceback__`, which some classes refuse, such as frozen dataclasses.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def is_instance(error: BaseException, kind: type[BaseException]) -> bool:
    """True if the type of `error` is `kind` or derived from it; does not read ``__class__``."""
    return issubclass(type(error), kind)


def read_exit_code(error: BaseException) -> int:
    """Return the exit code of an interpreter that ends with `error`."""
    if not is_instance(error, SystemExit):
        return 1
    code = _read_system_exit(error)
    if code is None:
        return 0
    return int(code) & 0xFF if type(code) in (int, bool) else 1


def read_class_name(error: BaseException) -> str:
    """Return the qualified name of the class of `error`, without ``f.<locals>.`` for a local class."""
    name: str = _QUALNAME(type(error))
    return name.rpartition("<locals>.")[2]


def read_message(error: BaseException) -> str:
    """Return message and notes of `error`, of a group also its members; at most `LONGEST_TEXT` characters."""
    return _read_message(error, 0)[:LONGEST_TEXT]


def read_stack(error: BaseException) -> traceback.StackSummary:
    """Return the frames of the traceback, innermost last."""
    return traceback.extract_tb(_read_traceback(error))


def read_chain(error: BaseException) -> tuple[RaisedException, ...]:
    """Return the exceptions in the chain of causes and contexts of `error`, the earliest first.

    `error` itself is not included. Of a long chain, at most `_LONGEST_CHAIN` exceptions are returned.
    """
    chain: list[RaisedException] = []
    visited = {id(error)}
    while (before := _read_previous(error)) is not None and id(before) not in visited:
        visited.add(id(before))  # User code may create a cycle.
        chain.append(_read_raised(before, handled=_read_attribute(error, "__cause__") is None))
        error = before
    if len(chain) > _LONGEST_CHAIN:
        chain[_LONGEST_CHAIN - 1 : -1] = []
    return tuple(reversed(chain))


def format_traceback(error: BaseException) -> str:
    """Return the traceback as Python prints it; stack and message if the class of `error` prevents that."""
    stack = _read_traceback(error)
    last = f"{read_class_name(error)}: {read_message(error)}\n"
    text = _call_safely(
        lambda: "".join(traceback.format_exception(type(error), error, stack)),
        "".join(["Traceback (most recent call last):\n", *traceback.format_tb(stack), last]),
    )
    return text[-LONGEST_TEXT:]


def is_from_torch(error: BaseException, stack: Sequence[traceback.FrameSummary]) -> bool:
    """True if torch raised the error: in one of its Python files, or in C++ code that the user called."""
    if _TRANSPORT.search(read_message(error)) or read_class_name(error).startswith("Dist"):
        return True
    return bool(stack) and f"{os.sep}site-packages{os.sep}torch{os.sep}" in stack[-1].filename


def find_collective(stack: Iterable[traceback.FrameSummary]) -> str:
    """Return the public function of torch.distributed in `stack`, or an empty string."""
    called = (frame.name for frame in stack if frame.filename.endswith(_COLLECTIVES))
    return next((name for name in called if not name.startswith("_")), "")


def _read_attribute(error: BaseException, name: str) -> Any:
    return _ATTRIBUTES[name].__get__(error)


def _read_traceback(error: BaseException) -> TracebackType | None:
    raised_at: TracebackType | None = _read_attribute(error, "__traceback__")
    return raised_at


def _read_system_exit(error: BaseException) -> Any:
    return vars(SystemExit)["code"].__get__(error)


def _read_previous(error: BaseException) -> BaseException | None:
    cause, context = _read_attribute(error, "__cause__"), _read_attribute(error, "__context__")
    previous: BaseException | None = cause
    if cause is None and not _read_attribute(error, "__suppress_context__"):
        previous = context
    return previous


def _read_raised(error: BaseException, *, handled: bool) -> RaisedException:
    stack = read_stack(error)
    return RaisedException(
        exception=read_class_name(error),
        message=read_message(error),
        frames=read_user_frames(stack),
        handled=handled,
        collective=find_collective(stack),
        from_torch=is_from_torch(error, stack),
    )


def _read_message(error: BaseException, depth: int) -> str:
    if is_instance(error, SystemExit):
        return _call_safely(lambda: f"the function called sys.exit({_read_system_exit(error)!r})")
    text = _call_safely(lambda: str(error))
    notes = _call_safely(lambda: _join_notes(error), "")
    # The message of an exception group has only the number of its exceptions.
    members = _call_safely(lambda: _describe_members(error, depth), "")
    return "\n".join(filter(None, [text, notes, members]))


def _join_notes(error: BaseException) -> str:
    notes = getattr(error, "__notes__", None)
    return "\n".join(str(note) for note in notes) if type(notes) is list else ""


def _describe_members(error: BaseException, depth: int) -> str:
    members = getattr(error, "exceptions", None)
    if type(members) is not tuple or depth == _DEEPEST_GROUP:
        return ""
    return "\n".join(f"{'  ' * depth}{_describe_member(member, depth + 1)}" for member in members)


def _describe_member(error: BaseException, depth: int) -> str:
    """Return ``ValueError: no data, at train.py:7 in read``, then the other lines of the message.

    `depth` is the number of exception groups that contain `error`.
    """
    first, *others = _read_message(error, depth).split("\n")
    frames = read_user_frames(read_stack(error))
    place = f", at {format_frame(frames[-1])}" if frames else ""
    name = read_class_name(error)
    return "\n".join([f"{name}: {first}{place}" if first else f"{name}{place}", *others])


def _call_safely(describe: Callable[[], str], otherwise: str | None = None) -> str:
    """Return the result of `describe`. If it raises, return `otherwise`, or a text that names the exception.

    The result has the exact type `str`, because a derived class may override methods with code that raises.
    """
    text = catch(lambda: str.__str__(describe()), BaseException)
    if not isinstance(text, Caught):
        return text
    if otherwise is not None:
        return otherwise
    return f"(its message cannot be printed: {read_class_name(text.error)})"
