"""Call code that may raise any exception, such as a user's code, and return the exception."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Caught:
    """The exception that a call raised."""

    error: BaseException


def catch(call: Callable[[], T], kind: type[BaseException] = Exception) -> T | Caught:
    """Return the result of `call`, or a `Caught` with the exception of type `kind` that the call raised."""
    try:
        return call()
    except BaseException as error:
        # The caller reports every exception that is not raised again here.
        if issubclass(type(error), kind):
            return Caught(error)
        raise
