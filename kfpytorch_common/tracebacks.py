"""Parse exceptions from the text of a traceback, as Python formats it and torch passes it on."""

import re
from dataclasses import replace
from typing import Final

from kfpytorch_common.causes import Frame, RaisedException

# torch._utils.ExceptionWrapper.reraise
_CAUGHT: Final = re.compile(
    r"Caught [\w.]{1,200} (in (?:(?!Caught )[^\n]){1,200})"
    r"\.\nOriginal (?=Traceback \(most recent call last\):\n)"
)
_JOINT: Final = re.compile(
    r"\n\n(?:The above exception was the direct cause of the following exception|"
    r"(During handling of the above exception, another exception occurred)):\n\n"
)
_HEAD: Final = "Traceback (most recent call last):\n"
_FRAME: Final = re.compile(
    r'^  File "(?P<file>[^"\n]{1,500})", line (?P<line>\d{1,9}), in (?P<function>[^\n]{1,300})'
    r"(?:\n    (?P<code>[^\n]*))?",
    re.MULTILINE,
)
_RAISED: Final = re.compile(r"^(?P<name>[A-Za-z_][\w.]{0,200})(?:: (?P<message>[\s\S]*)|:)?$")


def parse_chain(text: str) -> list[RaisedException]:
    """Return the exceptions of a formatted traceback, in the order in which they were raised."""
    parts = _JOINT.split(text)
    handled = [*(joint is not None for joint in parts[1::2]), False]
    found = (_parse_exception(part, handled=each) for part, each in zip(parts[::2], handled, strict=True))
    return [each for each in found if each is not None]


def parse_remote_chain(message: str) -> list[RaisedException]:
    """Return the exceptions that torch caught in another process or thread, if `message` contains them.

    The message of the last exception then ends with the name of that process or thread, such as
    "(in DataLoader worker process 0)".
    """
    found = _CAUGHT.search(message)
    if found is None:
        return []
    *earlier, last = parse_chain(message[found.end() :]) or [RaisedException(exception="", message="")]
    if not last.exception:
        return []
    return [*earlier, replace(last, message=f"{last.message} ({found[1]})".lstrip())]


def _parse_exception(text: str, *, handled: bool) -> RaisedException | None:
    lines = text.removeprefix(_HEAD).splitlines(keepends=True)
    start = next((number for number, line in enumerate(lines) if line[:1].strip()), None)
    if start is None:
        return None
    known = _RAISED.match("".join(lines[start:]).rstrip())
    if known is None:
        return None
    frames = tuple(
        Frame(
            file=each["file"],
            line=int(each["line"]),
            function=each["function"],
            code=each.groupdict("")["code"].strip(),
        )
        for each in _FRAME.finditer("".join(lines[:start]))
    )
    message = known.groupdict("")["message"].strip()
    return RaisedException(exception=known["name"], message=message, frames=frames, handled=handled)
