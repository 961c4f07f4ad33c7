"""Escapes for characters that a terminal or a browser interprets instead of displaying."""

import re
from typing import Final

_UNSAFE: Final = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # Controls C0 and C1, without tab and newline.
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # Marks that change the direction of text.
    "\u2028\u2029\ufeff"  # Line and paragraph separators, and the byte order mark.
    "\ud800-\udfff"  # Surrogates, which are not valid text.
    "]"
)


def escape(text: str) -> str:
    r"""Return the text with unsafe characters as ``\x1b`` or ``\u202e``; a tab or a newline stays."""
    # No unsafe character is printable, and most texts have a single line.
    if text.isprintable() or _UNSAFE.search(text) is None:
        return text
    return _UNSAFE.sub(lambda match: ascii(match[0])[1:-1], text.replace("\r\n", "\n"))


def escape_json(document: str) -> str:
    """Return an equivalent JSON document, with escapes for characters that a terminal would interpret."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", document)
