"""Copies of exceptions, for exceptions whose attributes cannot be read."""

import builtins
from collections.abc import Iterator
from typing import Any, Final

# Python 3.10 has no exception groups.
_GROUP: Final[tuple[type[BaseException], ...]] = tuple(
    filter(None, [getattr(builtins, "BaseExceptionGroup", None)])
)
# The readers of an exception distinguish these classes.
_BASES: Final[tuple[type[BaseException], ...]] = (SystemExit, *_GROUP)
_LINKS: Final = ("__cause__", "__context__")


def copy_readable_parts(error: BaseException) -> BaseException:
    """Return a copy of `error` with the name of its class, message, notes, stack, chain and members.

    The copy, its causes, contexts and members are of classes whose attributes can be read. `error` is not
    modified.
    """
    copies: dict[int, Any] = {}
    originals = [error]
    for original in originals:  # The list grows in the loop.
        if id(original) not in copies:
            copies[id(original)] = _copy_message(original)
            originals += _iter_linked(original)
    for original in originals:
        copy = copies[id(original)]
        for name in _LINKS:
            setattr(copy, name, copies.get(id(_read_field(original, name))))
        copy.__suppress_context__ = _read_field(original, "__suppress_context__")
        copy.exceptions = [copies[id(member)] for member in _read_members(original)]
    return copies[id(error)]  # type: ignore[no-any-return]  # An exception with assignable members.


def build_stand_in(error: BaseException, reading: BaseException) -> BaseException:
    """Return an exception with the class name and the stack of `error`, if its other parts cannot be read.

    `reading` is the exception that was raised when they were read.
    """
    content = {"__module__": "builtins", "__qualname__": _read_class_name(error)}
    stand_in: BaseException = type("StandIn", (Exception,), content)(
        f"the message is unknown, because reading the exception raises {_read_class_name(reading)}"
    )
    return stand_in.with_traceback(_read_field(error, "__traceback__"))


def _read_class_name(error: BaseException) -> str:
    name: str = vars(type)["__qualname__"].__get__(type(error))
    return name


def _copy_message(error: BaseException) -> BaseException:
    """Return a copy of `error` with the name of its class, message, notes and stack."""
    base = next((base for base in _BASES if issubclass(type(error), base)), Exception)
    content = {
        "__module__": "builtins",
        "__qualname__": type(error).__qualname__,
        "__str__": lambda _: str(error),
        "exceptions": (),  # Makes the members of a group assignable.
    }
    named = type(type(error).__name__, (base,), content)
    copy: BaseException = named("", [error]) if base in _GROUP else named()
    notes = _read_field(error, "__dict__").get("__notes__")
    if isinstance(notes, list):
        vars(copy)["__notes__"] = [note for note in notes if isinstance(note, str)]
    return copy.with_traceback(_read_field(error, "__traceback__"))


def _iter_linked(error: BaseException) -> Iterator[BaseException]:
    yield from filter(None, (_read_field(error, name) for name in _LINKS))
    yield from _read_members(error)


def _read_members(error: BaseException) -> tuple[BaseException, ...]:
    return _read_field(error, "exceptions", *_GROUP) if issubclass(type(error), _GROUP) else ()


def _read_field(error: BaseException, name: str, owner: type = BaseException) -> Any:
    """Return an attribute that Python itself sets, without calling methods of the class of `error`.

    `owner` is the class of Python that defines the attribute.
    """
    return vars(owner)[name].__get__(error)
