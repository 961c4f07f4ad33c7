"""Characters that a terminal or a browser obeys instead of showing, made visible.

Lives here: which they are, and how they are written. Used where text leaves for people: phases, events, log
lines, output of commands. Logs of containers are not touched, because programs colour them on purpose.
"""

import re
from typing import Final

_UNSAFE: Final = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # Controls C0 and C1, without tab and newline.
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # Marks that change the direction of text.
    "\u2028\u2029\ufeff"  # Ends of lines and paragraphs, and a mark without a width.
    "\ud800-\udfff"  # Halves of characters, which are no text.
    "]"
)


def escape(text: str) -> str:
    r"""Return the text with unsafe characters as ``\x1b`` or ``\u202e``; a tab or a newline stays."""
    if _UNSAFE.search(text) is None:
        return text
    return _UNSAFE.sub(_escaped, text.replace("\r\n", "\n"))


def escape_json(document: str) -> str:
    """Return a JSON document of the same meaning, without unsafe characters in its strings."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", document)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= _LAST_OF_TWO else f"\\u{code:04x}"


_LAST_OF_TWO: Final = 0xFF
