"""Splits streams of bytes into lines, or into frames with a length prefix, up to a maximum size."""

from collections.abc import Iterator
from typing import Final

_LINE_END: Final = b"\n"
_LENGTH: Final = 4


class LineSplitter:
    """Takes pieces of a stream and yields lines without their line ends. A line over the limit is cut."""

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
        while (end := piece.find(_LINE_END, begin)) >= 0:
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
        """The bytes after the last line end, which are an incomplete line."""
        return b"".join(self._parts)


class FrameSplitter:
    """Takes pieces of a stream and yields frames without their length prefixes of four bytes."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0
        self._needed = _LENGTH
        """The number of buffered bytes that complete the next length or frame."""
        self.cut = 0
        """The size of a frame over the limit, which is yielded empty. The stream cannot be split further."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the frames that `piece` completes."""
        self._parts.append(piece)
        self._size += len(piece)
        if self._size < self._needed:
            return
        data, at, self._needed = b"".join(self._parts), 0, _LENGTH
        while (begin := at + _LENGTH) <= len(data):
            end = begin + int.from_bytes(data[at:begin], "big")
            if end - begin > self._longest:
                self.cut = end - begin
                yield b""
                return
            if end > len(data):
                self._needed = end - at
                break
            yield data[begin:end]
            at = end
        self._parts, self._size = [data[at:]], len(data) - at

    @property
    def remainder(self) -> bytes:
        """The bytes of an incomplete frame."""
        return b"".join(self._parts)
