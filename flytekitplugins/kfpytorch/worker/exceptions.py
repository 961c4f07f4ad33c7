"""Read class name, message, chain and other properties of an exception of the user's code."""

import os
import re
import textwrap
import traceback
from collections.abc import Iterable
from traceback import TracebackException
from typing import Final

from flytekitplugins.kfpytorch.worker.user_frames import format_frame, read_user_frames
from kfpytorch_common.caught import Caught, catch
from kfpytorch_common.causes import RaisedException

_LONGEST_CHAIN: Final = 4
# The file that defines the public functions of torch.distributed.
_COLLECTIVES: Final = f"{os.sep}torch{os.sep}distributed{os.sep}distributed_c10d.py"
_EXIT_CODE: Final = re.compile(r"-?\d{1,20}|None|True|False|")
_TRANSPORT: Final = re.compile(r"third_party/gloo/|ProcessGroup(Gloo|NCCL)\.cpp")


def read_exit_code(error: BaseException) -> int:
    """Return the exit code of a Python interpreter that ends with the uncaught exception `error`."""
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def build_stand_in(error: BaseException) -> BaseException:
    """Return an exception with the class name, message and stack of `error`, without its causes and members.

    The result replaces an exception that cannot be described, because reading its attributes, causes or
    members raises an error. An example is a class whose `__getattr__` raises a KeyError.
    """
    content = {"__module__": "builtins", "__qualname__": type(error).__qualname__}
    message = catch(lambda: str(error), BaseException)
    text = "<exception str() failed>" if isinstance(message, Caught) else message  # As Python prints it.
    stand_in: BaseException = type(type(error).__name__, (Exception,), content)(text)
    return stand_in.with_traceback(error.__traceback__)


def get_class_name(raised: TracebackException) -> str:
    """Return the qualified name of the exception class, without ``f.<locals>.`` for a local class."""
    return raised.exc_type.__qualname__.rpartition("<locals>.")[2]


def format_message(raised: TracebackException) -> str:
    """Return a text with the message and notes of an exception, and the members of an exception group."""
    text = str(raised)
    if issubclass(raised.exc_type, SystemExit):
        # A text that is no exit code is a message, and is quoted.
        argument = text if _EXIT_CODE.fullmatch(text) else f'"{text}"'
        text = f"the function called sys.exit({argument})"
    # Python 3.10 has no notes and no exception groups. The message of a group only counts the members.
    notes = getattr(raised, "__notes__", None) or ()
    members = getattr(raised, "exceptions", None) or ()
    return "\n".join(filter(None, [text, *map(str, notes), *map(_format_member, members)]))


def list_chain(raised: TracebackException) -> tuple[RaisedException, ...]:
    """Return the exceptions in the chain of causes and contexts of `raised`, the earliest first.

    `raised` itself is not included. If the chain has more than `_LONGEST_CHAIN` exceptions, the result
    contains the earliest exception and the latest ones.
    """
    chain: list[RaisedException] = []
    while (before := raised.__cause__ or raised.__context__) is not None:
        chain.append(
            RaisedException(
                exception=get_class_name(before),
                message=format_message(before),
                frames=read_user_frames(before.stack),
                handled=raised.__cause__ is None,
                collective=find_collective(before.stack),
                from_torch=is_from_torch(before),
            )
        )
        raised = before
    if len(chain) > _LONGEST_CHAIN:
        chain[_LONGEST_CHAIN - 1 : -1] = []
    return tuple(reversed(chain))


def is_from_torch(raised: TracebackException) -> bool:
    """True if torch raised the exception, in a Python file of torch or in C++ code that the user called."""
    if _TRANSPORT.search(str(raised)) or get_class_name(raised).startswith("Dist"):
        return True
    innermost = raised.stack[-1].filename if raised.stack else ""
    return f"{os.sep}site-packages{os.sep}torch{os.sep}" in innermost


def find_collective(stack: Iterable[traceback.FrameSummary]) -> str:
    """Return the name of the torch.distributed function in `stack`, such as ``all_reduce``; else empty."""
    called = (frame.name for frame in stack if frame.filename.endswith(_COLLECTIVES))
    return next((name for name in called if not name.startswith("_")), "")


def _format_member(raised: TracebackException) -> str:
    """Return the text about a member of an exception group.

    The first line has a form such as ``ValueError: no data, at train.py:7 in read``. The other lines of the
    exception message follow.
    """
    first, _, others = format_message(raised).partition("\n")
    frames = read_user_frames(raised.stack)
    place = f", at {format_frame(frames[-1])}" if frames else ""
    head = ": ".join(filter(None, [get_class_name(raised), first]))
    return "\n".join(filter(None, [head + place, textwrap.indent(others, "  ")]))
