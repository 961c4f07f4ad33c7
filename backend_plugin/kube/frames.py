"""Splits a stream into frames with a length prefix of four bytes. Frames over a maximum size are skipped."""

from collections.abc import Iterator
from typing import Final

_LENGTH: Final = 4


class FrameSplitter:
    """Takes pieces of a stream and yields frames without their length prefixes."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0
        self._wanted = _LENGTH
        """The number of buffered bytes that complete the next length or frame."""
        self._over = 0
        """The number of bytes of a skipped frame that have not arrived."""
        self.cut = 0
        """The number of bytes omitted from the frame that was yielded last: 0 or its whole length."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the frames that `piece` completes.

        A frame over the maximum size is yielded empty as soon as its length is known, and its content
        is skipped.
        """
        kept = piece[self._over :]
        self._over -= len(piece) - len(kept)
        self._parts.append(kept)
        self._size += len(kept)
        if self._size < self._wanted:
            return
        data, at, self._wanted = b"".join(self._parts), 0, _LENGTH
        while (begin := at + _LENGTH) <= len(data):
            end = begin + int.from_bytes(data[at:begin], "big")
            is_long = end - begin > self._longest
            if end > len(data) and not is_long:
                self._wanted = end - at
                break
            self.cut = end - begin if is_long else 0
            yield b"" if is_long else data[begin:end]
            at = min(end, len(data))
            self._over = end - at
        self._parts, self._size = [data[at:]], len(data) - at

    @property
    def remainder(self) -> int:
        """Return the number of bytes that an incomplete frame lacks."""
        return self._over or (self._wanted - self._size if self._size else 0)
