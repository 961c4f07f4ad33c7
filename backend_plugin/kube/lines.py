"""Splits a stream of bytes into lines. A line over the limit is cut."""

from collections.abc import Iterator
from typing import Final

_END: Final = b"\n"


class LineSplitter:
    """Takes pieces of a stream and yields lines without their line ends."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0
        self.cut = 0
        """The number of bytes omitted from the line that was yielded last."""
        self._over = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the lines that `piece` completes."""
        begin = 0
        while (end := piece.find(_END, begin)) >= 0:
            self._buffer_part(piece[begin:end])
            line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts, self._size = [], 0
            self.cut, self._over = self._over, 0
            begin = end + 1
            yield line
        if begin < len(piece):
            self._buffer_part(piece[begin:])

    def _buffer_part(self, part: bytes) -> None:
        kept = part[: max(0, self._longest - self._size)]
        self._over += len(part) - len(kept)
        self._size += len(kept)
        if kept:
            self._parts.append(kept)

    @property
    def remainder(self) -> bytes:
        """The text after the last line end."""
        return b"".join(self._parts)
